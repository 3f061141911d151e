{{- define "retry.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "retry.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "retry.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "retry.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "retry.selector" -}}
app.kubernetes.io/name: {{ include "retry.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "retry.labels" -}}
{{ include "retry.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "retry.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "retry.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "retry.image" -}}
{{- $image := .image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- define "retry.policiesConfigMap" -}}
{{- default (printf "%s-policies" (include "retry.fullname" .)) .Values.policies.existingConfigMap }}
{{- end }}

{{/* What one value says about another; the schema cannot. */}}
{{- define "retry.checked" -}}
{{- $v := .Values }}
{{- if not $v.kafka.bootstrapServers }}
{{- fail "kafka.bootstrapServers is not set: give host:port of the brokers, with commas between" }}
{{- end }}
{{- if and (not $v.policies.file) (not $v.policies.existingConfigMap) }}
{{- fail "no policies: give --set-file policies.file=policies.yaml, or policies.existingConfigMap" }}
{{- end }}
{{- if and $v.policies.file $v.policies.existingConfigMap }}
{{- fail "policies.file and policies.existingConfigMap are both set: keep one" }}
{{- end }}
{{- if gt (mul $v.worker.replicas $v.worker.processes) (int64 $v.settings.shards) }}
{{- fail (printf "worker.replicas x worker.processes is more than settings.shards (%d): the rest would have nothing to do" (int64 $v.settings.shards)) }}
{{- end }}
{{- if and $v.api.enabled (not $v.api.tokens.name) }}
{{- fail "api.tokens.name is not set: name a Secret with lines that `retry api token TEAM` makes" }}
{{- end }}
{{- if $v.console.enabled }}
{{- if not (or $v.console.tokens.name $v.console.oidc.issuer $v.console.proxy.from) }}
{{- fail "console.tokens.name and console.oidc.issuer are not set: name a Secret with lines that `retry console token NAME` makes, an identity provider, or a proxy that signs people in (console.proxy)" }}
{{- end }}
{{- if not (or $v.console.tls.name $v.console.tls.proxy) }}
{{- fail "console.tls is not set: name a Secret with tls.crt and tls.key, or say that a proxy before it speaks TLS (console.tls.proxy)" }}
{{- end }}
{{- if and $v.console.oidc.issuer (not (and $v.console.oidc.clientId $v.console.oidc.roles.name)) }}
{{- fail "console.oidc.issuer is set: give console.oidc.clientId, and with console.oidc.roles.name a ConfigMap that says who has which role" }}
{{- end }}
{{- $proxy := list $v.console.proxy.from $v.console.proxy.secret.name $v.console.proxy.roles.name | compact }}
{{- if and $proxy (ne (len $proxy) 3) }}
{{- fail "console.proxy is set in part: give console.proxy.from, a Secret in console.proxy.secret.name, and with console.proxy.roles.name a ConfigMap that says who has which role" }}
{{- end }}
{{- if and (not $v.console.url) (or $v.console.tls.proxy $v.console.oidc.issuer) }}
{{- fail "console.url is not set: say by which address browsers reach the console, as https://retry.example.com" }}
{{- end }}
{{- end }}
{{- range $component := list "api" "console" "scheduler" }}
{{- $of := index $v $component }}
{{- if and $of.ingress.enabled (not $of.ingress.host) }}
{{- fail (printf "%s.ingress.host is not set: give the name by which it is reached, as retry.example.com" $component) }}
{{- end }}
{{- if and $of.httpRoute.enabled (not (and $of.httpRoute.parentRefs $of.httpRoute.hostnames)) }}
{{- fail (printf "%s.httpRoute: give parentRefs, which are the gateways, as [{name: GATEWAY}], and hostnames" $component) }}
{{- end }}
{{- end }}
{{- if $v.keda.enabled }}
{{- if not $v.keda.serverAddress }}
{{- fail "keda.serverAddress is not set: give the address of Prometheus, as http://prometheus.monitoring:9090" }}
{{- end }}
{{- if gt (mul $v.keda.maxReplicas $v.worker.processes) (int64 $v.settings.shards) }}
{{- fail (printf "keda.maxReplicas x worker.processes is more than settings.shards (%d): the rest would have nothing to do" (int64 $v.settings.shards)) }}
{{- end }}
{{- if gt (int64 $v.keda.minReplicas) (int64 $v.keda.maxReplicas) }}
{{- fail "keda.minReplicas is more than keda.maxReplicas" }}
{{- end }}
{{- end }}
{{- if $v.networkPolicy.enabled }}
{{- $to := dict "kafkaTo" "the brokers are" }}
{{- if $v.registry.url }}{{ $_ := set $to "registryTo" "the schema registry is" }}{{ end }}
{{- if and $v.console.enabled (or $v.console.oidc.issuer $v.console.notifications.name) }}
{{- $_ := set $to "consoleTo" "the console's identity provider and targets of notifications are" }}
{{- end }}
{{- range $name, $what := $to }}
{{- if not (index $v.networkPolicy $name) }}
{{- fail (printf "networkPolicy.%s is not set: name peers, as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}], so that pods reach where %s; [{ipBlock: {cidr: 0.0.0.0/0}}] is anywhere" $name $what) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $group := list "kafka" "registry" }}
{{- range $name, $_ := (index $v $group).properties }}
{{- if (regexMatch "(?i)password|passphrase|secret|jaas|key[.]pem|[.]token$|oauthbearer[.]config|user[.]info" $name) }}
{{- fail (printf "%s.properties: %s is a secret; name a Secret under %s.secretProperties" $group $name $group) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "retry.plain" -}}
{{- if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) }}{{ int64 . | toString | quote }}{{ else }}{{ toString . | quote }}{{ end }}
{{- end }}

{{- define "retry.properties" -}}
{{- $prefix := .prefix }}
{{- range $name, $value := .of.properties }}
- name: {{ $prefix }}{{ $name | replace "." "_" | upper }}
  value: {{ include "retry.plain" $value }}
{{- end }}
{{- range $name, $secret := .of.secretProperties }}
- name: {{ $prefix }}{{ $name | replace "." "_" | upper }}
  valueFrom: {secretKeyRef: {name: {{ $secret.name }}, key: {{ $secret.key }}}}
{{- end }}
{{- end }}

{{/* RETRY_* of every pod: root, appId, dataDir. */}}
{{- define "retry.env" -}}
{{- $v := .root.Values }}
- name: RETRY_APP_ID
  value: {{ .appId | quote }}
- name: RETRY_BOOTSTRAP_SERVERS
  value: {{ $v.kafka.bootstrapServers | quote }}
{{- if not .withoutPolicies }}
- name: RETRY_POLICIES
  value: /etc/retry/policies/{{ $v.policies.key }}
{{- end }}
- name: RETRY_DATA_DIR
  value: {{ .dataDir }}
# All that is written lies in one volume.
- name: TMPDIR
  value: {{ .dataDir }}
{{- if $v.webhookSecrets.name }}
- name: RETRY_WEBHOOK_SECRETS
  value: /etc/retry/webhook/{{ $v.webhookSecrets.key }}
{{- end }}
{{- if $v.webhookCertificates.name }}
- name: RETRY_WEBHOOK_CERTIFICATES
  value: /etc/retry/webhook-certificates
{{- end }}
{{- if $v.encryptionKeys.name }}
- name: RETRY_ENCRYPTION_KEYS
  value: /etc/retry/encryption/{{ $v.encryptionKeys.key }}
{{- end }}
{{- range $name, $value := $v.settings }}
- name: RETRY_{{ $name | snakecase | upper }}
{{- if eq $name "httpHosts" }}
  {{- $full := include "retry.fullname" $.root }}
  {{- $hosts := list "*.svc" "*.svc.cluster.local" }}
  {{- range $component := list "api" "console" "scheduler" "worker" }}
  {{- $hosts = append $hosts (printf "%s-%s" $full $component) }}
  {{- with (index $v $component).ingress }}{{ if .enabled }}{{ $hosts = append $hosts .host }}{{ end }}{{ end }}
  {{- with (index $v $component).httpRoute }}{{ if .enabled }}{{ $hosts = concat $hosts .hostnames }}{{ end }}{{ end }}
  {{- end }}
  value: {{ append $hosts $value | compact | join "," | quote }}
{{- else }}
  value: {{ include "retry.plain" $value }}
{{- end }}
{{- end }}
{{- include "retry.properties" (dict "prefix" "RETRY_KAFKA_" "of" $v.kafka) }}
{{- with $v.registry.url }}
- name: RETRY_REGISTRY_URL
  value: {{ . | quote }}
{{- end }}
{{- include "retry.properties" (dict "prefix" "RETRY_REGISTRY_" "of" $v.registry) }}
{{- end }}

{{/* TLS of what a component serves. */}}
{{- define "retry.tlsEnv" -}}
- {name: {{ .prefix }}_TLS_CERT, value: /etc/retry/server-tls/tls.crt}
- {name: {{ .prefix }}_TLS_KEY, value: /etc/retry/server-tls/tls.key}
{{- end }}

{{- define "retry.tlsVolume" -}}
- name: server-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}

{{- define "retry.mounts" -}}
- {name: policies, mountPath: /etc/retry/policies, readOnly: true}
{{- if .Values.kafka.tlsSecret }}
- {name: tls, mountPath: /etc/retry/tls, readOnly: true}
{{- end }}
{{- if .Values.webhookSecrets.name }}
- {name: webhook, mountPath: /etc/retry/webhook, readOnly: true}
{{- end }}
{{- if .Values.webhookCertificates.name }}
- {name: webhook-certificates, mountPath: /etc/retry/webhook-certificates, readOnly: true}
{{- end }}
{{- if .Values.encryptionKeys.name }}
- {name: encryption, mountPath: /etc/retry/encryption, readOnly: true}
{{- end }}
{{- end }}

{{- define "retry.volumes" -}}
- name: policies
  configMap: {name: {{ include "retry.policiesConfigMap" . }}}
{{- with .Values.kafka.tlsSecret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.webhookSecrets.name }}
- name: webhook
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.webhookCertificates.name }}
- name: webhook-certificates
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.encryptionKeys.name }}
- name: encryption
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "retry.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Of a pod: root, of (a component's values), component. */}}
{{- define "retry.pod" -}}
serviceAccountName: {{ include "retry.serviceAccount" .root }}
automountServiceAccountToken: false
# Kubernetes would set RETRY_WORKER_PORT and the like for the services of a release named retry, and an unknown RETRY_ stops the program.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
{{- if not (.root.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
  # OpenShift gives each namespace users of its own, and lets in no pod that names another one.
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
{{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if and .of.topologySpread .of.topologySpread.enabled }}
topologySpreadConstraints:
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $.of.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{ include "retry.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "retry.podMetadata" -}}
labels: {{ include "retry.selector" . | nindent 2 }}
{{- with .root.Values.commonLabels }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .of.podLabels }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- $restart := and .root.Values.policies.restartOnChange .root.Values.policies.file }}
{{- if or $restart .of.podAnnotations }}
annotations:
{{- if $restart }}
  checksum/policies: {{ .root.Values.policies.file | sha256sum }}
{{- end }}
{{- with .of.podAnnotations }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A container that looks after topics: root, of (a component's values), does (what it does to them). */}}
{{- define "retry.topicsContainer" -}}
- name: topics
  image: {{ include "retry.image" (dict "root" .root "image" .root.Values.image) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [topics, {{ .does }}]
  env: {{ include "retry.env" (dict "root" .root "appId" .root.Values.appId "dataDir" "/data") | nindent 4 }}
    {{- with .of.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  securityContext: {{ include "retry.containerSecurity" .root | nindent 4 }}
  resources: {requests: {cpu: 50m, memory: 128Mi}, limits: {memory: 256Mi}}
  volumeMounts:
    - {name: data, mountPath: /data}
    {{- include "retry.mounts" .root | nindent 4 }}
    {{- with .of.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Ports of a NetworkPolicy. */}}
{{- define "retry.tcp" -}}
[{{ range $i, $port := . }}{{ if $i }}, {{ end }}{protocol: TCP, port: {{ $port }}}{{ end }}]
{{- end }}

{{- define "retry.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "retry.fullname" .root }}-{{ .component }}
  labels: {{ include "retry.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .of.podDisruptionBudget.maxUnavailable }}
  # What is not ready serves nobody, and may be moved.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{ include "retry.selector" . | nindent 6 }}
{{- end }}
