// SPDX-License-Identifier: Apache-2.0

// Package storage provisions PersistentVolumes as directories of the machine.
package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Name is the name of the provisioner in the storage class.
const Name = "trireme.local/host-directory"

// Run provisions until the context ends.
func Run(ctx context.Context, client kubernetes.Interface, node, directory string) {
	controller.NewProvisionController(ctx, client, Name, directories{root: directory, node: node},
		// There is one instance: leader election would only delay it.
		controller.LeaderElection(false),
		controller.Threadiness(2),
	).Run(ctx)
}

// directories is the provisioner: one directory below root for each volume, on the real
// node.
type directories struct{ root, node string }

// Provision creates a directory that all users can write to, because the UID of the pod
// is not known. All access modes work, because there is only one real node.
func (d directories) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.root, options.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volume of PVC %s/%s: %w", options.PVC.Namespace, options.PVC.Name, err)
	}
	// The umask may have removed bits of the mode.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volume of PVC %s/%s: %w", options.PVC.Namespace, options.PVC.Name, err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: options.PVC.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity:           d.onlyRealNode(),
		},
	}
	return volume, controller.ProvisioningFinished, nil
}

func (d directories) onlyRealNode() *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{d.node},
		}},
	}}}}
}

// Delete deletes the directory of a volume, and ignores volumes of other provisioners.
func (d directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	// Clean the path first: the directory of "root/.." is root, too.
	if volume.Spec.Local == nil || filepath.Dir(filepath.Clean(volume.Spec.Local.Path)) != filepath.Clean(d.root) {
		return &controller.IgnoredError{Reason: "not a directory below " + d.root}
	}
	return os.RemoveAll(filepath.Clean(volume.Spec.Local.Path))
}
