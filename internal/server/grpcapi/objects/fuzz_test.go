// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// FuzzContentToMessage: any JSON can be converted, and a second conversion has the same
// result.
func FuzzContentToMessage(f *testing.F) {
	for _, manifest := range random.Manifests(f, "../../../..", "MPIJob") {
		f.Add(manifest)
	}
	f.Add([]byte(`{"metadata":{"name":1,"labels":{}},"spec":{"slotsPerWorker":99999999999,"mpiReplicaSpecs":{"Worker":null,"Launcher":[]}},"a":[null,-0.0,1e300,9223372036854775807]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var content map[string]any
		if utiljson.Unmarshal(document, &content) != nil || content == nil {
			return
		}
		first := &wire.MPIJob{}
		fill(first.ProtoReflect(), content)
		encoded, err := proto.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		received := &wire.MPIJob{}
		if err := proto.Unmarshal(encoded, received); err != nil {
			t.Fatal(err)
		}
		again, err := contentOf(received.ProtoReflect(), "")
		if err != nil {
			// A number such as 1e300, which no Kubernetes field accepts.
			if apierror.From(err).Code != 400 {
				t.Fatal(err)
			}
			return
		}
		second := &wire.MPIJob{}
		fill(second.ProtoReflect(), again)
		if diff := cmp.Diff(first, second, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzMessageToObject: any message becomes an object with the same content, or is an error
// of the client.
func FuzzMessageToObject(f *testing.F) {
	for _, manifest := range random.Manifests(f, "../../../..", "MPIJob") {
		var job v2beta1.MPIJob
		message := &wire.MPIJob{}
		if err := json.Unmarshal(manifest, &job); err != nil {
			f.Fatal(err)
		}
		if err := ToMessage(&job, message); err != nil {
			f.Fatal(err)
		}
		encoded, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		message, job := &wire.MPIJob{}, &v2beta1.MPIJob{}
		if proto.Unmarshal(encoded, message) != nil {
			return
		}
		if err := FromMessage(message, job); err != nil {
			if apierror.From(err).Code != 400 {
				t.Fatalf("%v: %s", err, protojson.Format(message))
			}
			return
		}
		before := asJSON(t, job)
		if diff := cmp.Diff(before, asJSON(t, carried(t, job, &wire.MPIJob{}))); diff != "" {
			t.Fatal(diff)
		}
	})
}
