// Every program of a local cluster's control plane, the kubelet, kube-proxy and kubectl, in one binary that dispatches
// on the name it is called by.
//
// One binary because the programs share most of their packages: they compile once and link once, and one file
// serves the control plane and every node. Each program is exactly the command of its own Go module.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func run(command *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command)) }
}

var programs = map[string]func(){
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand())() },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand())() },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand())() },
	"kube-proxy":              func() { run(proxy.NewProxyCommand())() },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background()))() },
	"kubectl":                 func() { run(kubectl.NewDefaultKubectlCommand())() },
	"coredns":                 runCoreDNS,
	"etcd":                    runEtcd,
}

func main() {
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known {
		var names []string
		for each := range programs {
			names = append(names, each)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "called as %q: call this binary through a link named %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	program()
}
