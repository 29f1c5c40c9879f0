// SPDX-License-Identifier: Apache-2.0

// Command deviceplugin is a device plugin for tests on machines without GPUs: it
// registers devices with the kubelet, and each container gets a file and a variable for
// each device that was allocated to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "test-devices.sock"

func main() {
	directory := flag.String("directory", api.DevicePluginPath, "Directory of the kubelet's socket")
	resource := flag.String("resource", "nvidia.com/gpu", "Name of the resource")
	count := flag.Int("devices", 1, "Number of devices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *directory, *resource, *count); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, directory, resource string, count int) error {
	path := filepath.Join(directory, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin := &devices{}
	for i := range count {
		plugin.all = append(plugin.all, &api.Device{ID: fmt.Sprintf("GPU-%d", i), Health: api.Healthy})
	}
	api.RegisterDevicePluginServer(server, plugin)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Stop()
	if err := register(ctx, filepath.Join(directory, filepath.Base(api.KubeletSocket)), resource); err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func register(ctx context.Context, kubelet, resource string) error {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx,
		&api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}, grpc.WaitForReady(true))
	return err
}

// devices are those that the kubelet allocates.
type devices struct {
	api.UnimplementedDevicePluginServer
	all []*api.Device
}

func (d *devices) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch reports the devices once: they stay healthy.
func (d *devices) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: d.all}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives a container the file /dev/NAME for each device, and their names.
func (d *devices) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		one := &api.ContainerAllocateResponse{Envs: map[string]string{"ALLOCATED_DEVICES": strings.Join(container.DevicesIds, ",")}}
		for _, id := range container.DevicesIds {
			one.Devices = append(one.Devices, &api.DeviceSpec{HostPath: "/dev/zero", ContainerPath: "/dev/" + id, Permissions: "r"})
		}
		response.ContainerResponses = append(response.ContainerResponses, one)
	}
	return response, nil
}
