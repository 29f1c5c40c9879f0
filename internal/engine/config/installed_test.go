// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// What the chart installs must start.
func TestInstalledConfigurationsLoad(t *testing.T) {
	for _, values := range []string{"kubernetes", "openshift", "complete"} {
		t.Run(values, func(t *testing.T) {
			var installed corev1.ConfigMap
			for _, object := range deployed.ManifestsWith(t, values, "ConfigMap/trireme-operator") {
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &installed); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := config.Parse(values, []byte(installed.Data["config.yaml"])); err != nil {
				t.Error(err)
			}
		})
	}
}
