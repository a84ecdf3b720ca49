// The Kubernetes provider of Pulumi, from its Go module, for a machine that cannot download the released plugin.
//
// The main function of the released plugin does the same. It cannot be built from the module, because it embeds
// generated files that the module does not contain. This file embeds files that the module contains, under the names
// below; setup/go_programs.py adds them with `go build -overlay`.
package main

import (
	_ "embed"
	"os"
	"syscall"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

// Set by the linker.
var version string

// init has the kernel end this process with the engine that started it: `kill -9` of `pulumi` leaves no process.
// The main goroutine runs on the main thread here, and the setting belongs to a thread.
func init() {
	parent := os.Getppid()
	_, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	if failed != 0 || os.Getppid() != parent {
		os.Exit(1)
	}
}

func main() {
	provider.Serve("kubernetes", version, schema, terraformMapping)
}
