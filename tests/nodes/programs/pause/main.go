// Command pause holds the namespaces of a pod. The kernel collects what loses its parent there.
package main

import (
	"os/signal"
	"syscall"
	"time"
)

func main() {
	signal.Ignore(syscall.SIGCHLD)
	for {
		time.Sleep(time.Hour)
	}
}
