// The binary of a real node: kubelet and kube-proxy as Kubernetes has them, and stand-ins for what a GPU vendor installs.
// The first argument says which part to be.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func run(command *cobra.Command, args []string) {
	command.SetArgs(args)
	os.Exit(cli.Run(command))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy|device-plugin|dra-driver [arguments]")
		os.Exit(2)
	}
	part, args := os.Args[1], os.Args[2:]
	os.Args = os.Args[1:] // the version flags read it themselves
	switch part {
	case "kubelet":
		run(kubelet.NewKubeletCommand(context.Background()), args)
	case "kube-proxy":
		run(proxy.NewProxyCommand(), args)
	case "device-plugin": // UUID ...
		fail(serveDevicePlugin(args))
	case "dra-driver": // KUBECONFIG NODE DRIVER
		fail(serveClaims(args[0], args[1], args[2]))
	}
	fail(fmt.Errorf("unknown part %q", part))
}
