package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	plugins = "/var/lib/kubelet/plugins"
	offered = 2
)

// claims prepares whatever was allocated and says so on standard output.
type claims struct{}

func (claims) PrepareResourceClaims(
	_ context.Context, asked []*resource.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	found := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range asked {
		var devices []kubeletplugin.Device
		for _, each := range claim.Status.Allocation.Devices.Results {
			fmt.Println("prepare", claim.Namespace, claim.Name, each.Pool, each.Device)
			devices = append(devices, kubeletplugin.Device{
				Requests: []string{each.Request}, PoolName: each.Pool, DeviceName: each.Device,
			})
		}
		found[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return found, nil
}

func (claims) UnprepareResourceClaims(
	_ context.Context, asked []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	found := map[types.UID]error{}
	for _, claim := range asked {
		fmt.Println("unprepare", claim.Namespace, claim.Name)
		found[claim.UID] = nil
	}
	return found, nil
}

func (claims) HandleError(_ context.Context, err error, what string) { fmt.Println("error", what, err) }

// serveClaims publishes the devices of a driver on this node and prepares claims for the kubelet.
func serveClaims(kubeconfig, node, driver string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(plugins, driver), 0o750); err != nil {
		return err
	}
	ctx := context.Background()
	helper, err := kubeletplugin.Start(
		ctx, claims{}, kubeletplugin.DriverName(driver), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client),
	)
	if err != nil {
		return err
	}
	slice := resourceslice.Slice{}
	for index := range offered {
		slice.Devices = append(slice.Devices, resource.Device{Name: fmt.Sprintf("gpu-%d", index)})
	}
	pool := map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{slice}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pool}); err != nil {
		return err
	}
	fmt.Println("published", offered)
	select {}
}
