// The Kubernetes provider of Pulumi, from its Go module, for a machine that cannot download the released plugin.
//
// The released plugin has no other main either, and cmd/pulumi-resource-kubernetes of the module does not build as it
// is: it embeds generated files that the module leaves out. setup/go_programs.py lays the module's own files over the
// names below.
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
