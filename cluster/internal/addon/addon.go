// SPDX-License-Identifier: Apache-2.0

// Package addon creates the objects of a new cluster: RBAC, storage class, JobSet, fake
// nodes.
package addon

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

//go:embed manifests
var manifests embed.FS

const fieldManager = "trireme-cluster"

// Apply creates or updates all addons.
func Apply(ctx context.Context, config *rest.Config, l layout.Layout, kubernetes string) error {
	objects, err := Objects(l, kubernetes)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("apply addons: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("apply addons: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer))
	for _, object := range objects {
		if err := apply(ctx, client, mapper, object); err != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	resource := client.Resource(mapping.Resource)
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}

// Objects are all addons, in the order in which they must exist. The folder
// holds the manifests that the build took from the JobSet module.
func Objects(l layout.Layout, kubernetes string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range []string{"rbac.yaml", "storageclass.yaml"} {
		content, err := manifests.ReadFile("manifests/" + file)
		if err != nil {
			return nil, fmt.Errorf("addon %s: %w", file, err)
		}
		parsed, err := parse(content)
		if err != nil {
			return nil, fmt.Errorf("addon %s: %w", file, err)
		}
		objects = append(objects, parsed...)
	}
	jobSet, err := jobSetObjects(l, kubernetes)
	if err != nil {
		return nil, fmt.Errorf("addon jobset: %w", err)
	}
	return append(objects, jobSet...), nil
}

func parse(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// jobSetObjects are JobSet's own manifests, changed for a controller that runs
// beside the API server instead of in a pod: the role goes to its user, the
// webhooks are reached by address.
func jobSetObjects(l layout.Layout, kubernetes string) ([]*unstructured.Unstructured, error) {
	authority, err := os.ReadFile(filepath.Join(l.PKI(), component.ClusterAuthority+".crt"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range []string{"jobset-crd.yaml", "jobset-role.yaml", "jobset-webhook.yaml"} {
		content, err := os.ReadFile(filepath.Join(kubernetes, file))
		if err != nil {
			return nil, err
		}
		parsed, err := parse(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, parsed...)
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole":
			object.SetName("trireme:jobset")
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			object.SetName("jobset-" + object.GetName())
			if err := redirectWebhooks(object, l, authority); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

func redirectWebhooks(configuration *unstructured.Unstructured, l layout.Layout, authority []byte) error {
	webhooks, found, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("%s: %w", configuration.GetName(), err)
	}
	if !found {
		return fmt.Errorf("%s has no webhooks", configuration.GetName())
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: webhook %d is not an object", configuration.GetName(), i)
		}
		path, _, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		webhook["clientConfig"] = map[string]any{
			"url":      fmt.Sprintf("https://%s:%d%s", l.Network.Node(), layout.JobSetWebhookPort, path),
			"caBundle": base64.StdEncoding.EncodeToString(authority),
		}
		if path == "/mutate--v1-pod" || path == "/validate--v1-pod" {
			// As in JobSet's own deployment: only pods of a JobSet.
			webhook["objectSelector"] = map[string]any{"matchExpressions": []any{
				map[string]any{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"},
			}}
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}
