// One binary that is a whole Kubernetes control plane, and kubectl: the first argument says which part to be.
//
// The parts share most of their code, so one link costs a fifth of the time and space of five.
// Standard input is a leash: its owner holds the other end open, and a part whose owner is gone ends itself, however
// the owner died. Without CONTROLPLANE_LEASH in its environment a part runs free.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const patience = 5 * time.Second

var parts = map[string]func([]string){
	"etcd":                    etcdmain.Main,
	"kube-apiserver":          cobraPart(apiserver.NewAPIServerCommand),
	"kube-controller-manager": cobraPart(controllers.NewControllerManagerCommand),
	"kube-scheduler":          cobraPart(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 runKubectl,
}

func cobraPart(build func() *cobra.Command) func([]string) {
	return func(args []string) {
		command := build()
		command.SetArgs(args[1:])
		os.Exit(cli.Run(command))
	}
}

// runKubectl takes its arguments from os.Args by itself.
func runKubectl([]string) {
	util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
}

// endWithOwner ends this process, gently and then not, once standard input is closed.
func endWithOwner() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Fprintln(os.Stderr, "the owner of this process is gone, ending")
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	time.Sleep(patience)
	os.Exit(1)
}

func partNames() string {
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, "|")
}

func main() {
	var run func([]string)
	if len(os.Args) > 1 {
		run = parts[os.Args[1]]
	}
	if run == nil {
		fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags]\n", partNames())
		os.Exit(2)
	}
	if os.Getenv("CONTROLPLANE_LEASH") != "" {
		go endWithOwner()
	}
	os.Args = os.Args[1:] // etcd and the version flags read it themselves
	run(os.Args)
}
