// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The resource version of a job without recent changes may have expired. The job is
// followed from the latest version, and shown once.
func TestFollowingAnOldJob(t *testing.T) {
	done := trainJobNamed("digits", succeeded)
	done.ResourceVersion = "1000"
	var asked []string
	api := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(trainJobNamed("digits", running)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.SetResourceVersion("5000")
			return nil
		},
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			version := options[0].(*client.ListOptions).Raw.ResourceVersion
			asked = append(asked, version)
			events := watch.NewFakeWithChanSize(1, false)
			if version == "5000" {
				events.Modify(done)
			} else {
				events.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
			}
			return events, nil
		},
	}).Build()
	var shown []string
	err := followJob(t.Context(), trainJobs, api, "default", "digits", func(j *view) (bool, error) {
		shown = append(shown, j.State())
		return j.Finished(), nil
	})
	if err != nil || !slices.Equal(shown, []string{"Running", "Succeeded"}) || !slices.Equal(asked, []string{"999", "5000"}) {
		t.Errorf("shown %q, asked for changes since %q: %v", shown, asked, err)
	}
}

// Requests run concurrently, and each may cause a warning.
func TestWarningsOfManyRequests(t *testing.T) {
	var talk bytes.Buffer
	warnings := &warnings{to: &talk}
	var requests sync.WaitGroup
	for i := range 64 {
		requests.Go(func() {
			for j := range 200 {
				warnings.HandleWarningHeader(warningCode, "", fmt.Sprintf("warning %d of %d", j, i%2))
			}
		})
	}
	requests.Wait()
	if got := bytes.Count(talk.Bytes(), []byte("\n")); got != 400 {
		t.Errorf("%d warnings, want 400", got)
	}
}
