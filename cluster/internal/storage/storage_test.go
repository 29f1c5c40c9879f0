// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func claim(name, size string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
}

func options(name string, of *corev1.PersistentVolumeClaim) controller.ProvisionOptions {
	policy := corev1.PersistentVolumeReclaimDelete
	return controller.ProvisionOptions{
		PVName:       name,
		PVC:          of,
		StorageClass: &storagev1.StorageClass{ReclaimPolicy: &policy, MountOptions: []string{"noatime"}},
	}
}

func TestProvision(t *testing.T) {
	root := filepath.Join(t.TempDir(), "volumes")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	// The strictest one there is. It is the whole process's, so no test here
	// runs beside another.
	defer syscall.Umask(syscall.Umask(0o777))
	d := directories{root: root, node: "mine"}
	of := claim("data", "5Gi", corev1.ReadWriteMany, corev1.ReadWriteOnce)

	volume, state, err := d.Provision(context.Background(), options("pvc-1", of))
	if err != nil {
		t.Fatal(err)
	}
	if state != controller.ProvisioningFinished {
		t.Errorf("state is %s, want %s", state, controller.ProvisioningFinished)
	}
	path := filepath.Join(root, "pvc-1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := os.ModeDir | 0o777; info.Mode() != want {
		t.Errorf("mode is %v, want %v: a pod of any user must be able to write", info.Mode(), want)
	}
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce},
			MountOptions:                  []string{"noatime"},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"mine"},
				}},
			}}}},
		},
	}
	if diff := cmp.Diff(want, volume); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}

	// The controller repeats a call whose answer it could not note down.
	kept := filepath.Join(path, "kept")
	if err := os.WriteFile(kept, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Provision(context.Background(), options("pvc-1", of)); err != nil {
		t.Errorf("provision the same again: %v", err)
	}
	if _, err := os.Lstat(kept); err != nil {
		t.Errorf("provisioning again lost what the volume held: %v", err)
	}
}

func TestProvisionNamesTheClaimItFailsFor(t *testing.T) {
	root := filepath.Join(t.TempDir(), "volumes")
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, state, err := directories{root: root, node: "mine"}.Provision(context.Background(), options("pvc-1", claim("data", "1Gi")))
	if err == nil || !strings.Contains(err.Error(), "PVC team/data") {
		t.Errorf("error %v does not name the PVC", err)
	}
	if state != controller.ProvisioningFinished {
		t.Errorf("state is %s: the controller would wait for something that goes on behind it", state)
	}
}

func TestDelete(t *testing.T) {
	tests := map[string]struct {
		// path of the volume, where ROOT is the provisioner's directory.
		path       string
		wantGone   string
		wantRefuse bool
	}{
		"one of ours":                         {path: "ROOT/pvc-1", wantGone: "ROOT/pvc-1"},
		"one of ours, written another way":    {path: "ROOT/./pvc-1/", wantGone: "ROOT/pvc-1"},
		"one that is gone already":            {path: "ROOT/pvc-9"},
		"a directory elsewhere":               {path: "ROOT/../other", wantRefuse: true},
		"a directory of a similar name":       {path: "ROOT-2/pvc-1", wantRefuse: true},
		"the provisioner's directory itself":  {path: "ROOT", wantRefuse: true},
		"the same with a slash":               {path: "ROOT/", wantRefuse: true},
		"the same with a dot":                 {path: "ROOT/.", wantRefuse: true},
		"the directory above":                 {path: "ROOT/..", wantRefuse: true},
		"the directory above by a detour":     {path: "ROOT/pvc-1/../..", wantRefuse: true},
		"a folder within a volume":            {path: "ROOT/pvc-1/deep", wantRefuse: true},
		"the machine's root":                  {path: "/", wantRefuse: true},
		"a volume that is no local directory": {wantRefuse: true},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			base := t.TempDir()
			root := filepath.Join(base, "volumes")
			all := []string{root + "/pvc-1/deep/file", root + "/pvc-2/file", root + "-2/pvc-1/file", base + "/other/file"}
			for _, file := range all {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			volume := &corev1.PersistentVolume{}
			if test.path != "" {
				volume.Spec.Local = &corev1.LocalVolumeSource{Path: strings.ReplaceAll(test.path, "ROOT", root)}
			}
			// A trailing slash must not make everything a stranger.
			err := directories{root: root + "/", node: "mine"}.Delete(context.Background(), volume)
			var ignored *controller.IgnoredError
			switch refused := errors.As(err, &ignored); {
			case refused != test.wantRefuse:
				t.Errorf("error %v, want refusal = %v", err, test.wantRefuse)
			case !refused && err != nil:
				t.Error(err)
			}
			gone := strings.ReplaceAll(test.wantGone, "ROOT", root)
			for _, file := range all {
				_, err := os.Stat(file)
				wantGone := gone != "" && strings.HasPrefix(file, gone+"/")
				if got := errors.Is(err, os.ErrNotExist); got != wantGone {
					t.Errorf("%s: gone = %v, want %v", file, got, wantGone)
				}
			}
			if gone != "" {
				if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is still there (%v)", gone, err)
				}
			}
		})
	}
}

func TestStorageClassAsksForThisProvisioner(t *testing.T) {
	// The manifest is embedded in another package; the two must agree.
	content, err := os.ReadFile("../addon/manifests/storageclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "provisioner: "+Name+"\n") {
		t.Errorf("the storage class is not of %s:\n%s", Name, content)
	}
}
