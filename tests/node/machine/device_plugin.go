package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socketName   = "fake-gpus.sock"
	resourceName = "nvidia.com/gpu"
	visible      = "NVIDIA_VISIBLE_DEVICES"
)

// gpus offers devices by their UUIDs, and tells a container which it has as NVIDIA's plugin does.
type gpus struct {
	api.UnimplementedDevicePluginServer
	uuids []string
}

func (g *gpus) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (g *gpus) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	list := &api.ListAndWatchResponse{}
	for _, uuid := range g.uuids {
		list.Devices = append(list.Devices, &api.Device{ID: uuid, Health: api.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (g *gpus) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := map[string]string{visible: strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: given})
	}
	return answer, nil
}

// serveDevicePlugin registers with the kubelet; a kubelet that starts again forgets its plugins.
func serveDevicePlugin(uuids []string) error {
	socket := filepath.Join(api.DevicePluginPath, socketName)
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &gpus{uuids: uuids})
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socketName, ResourceName: resourceName}
	if _, err := api.NewRegistrationClient(kubelet).Register(context.Background(), request); err != nil {
		return err
	}
	fmt.Println("registered", uuids)
	return <-ended
}
