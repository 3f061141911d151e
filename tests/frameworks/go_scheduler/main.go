// The Go kafka-message-scheduler as its own main runs it, without the profiler, which listens on every interface.
package main

import (
	"os"
	"os/signal"
	"syscall"

	runner "github.com/etf1/kafka-message-scheduler/runner/kafka"
)

func main() {
	scheduler := runner.DefaultRunner()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		scheduler.Close()
	}()
	if err := scheduler.Start(); err != nil {
		panic(err)
	}
}
