module crds

go 1.26.0

// For the definitions of their resources, which lie in them as files.
require (
	github.com/kedacore/keda/v2 v2.16.1
	github.com/prometheus-operator/prometheus-operator v0.80.1
	sigs.k8s.io/gateway-api v1.2.1
)
