// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installation is an operator's Deployment, and the lease of its leader.
type installation struct {
	namespace, deployment, lease string
	replicas                     int32
}

// Both operators serve the same kind, and both take managedBy's one name for their
// own. So one of them runs at a time: the other has no pods.
var (
	trireme = installation{"trireme-system", "trireme-operator", "trireme-leader", 2}
	peer    = installation{"mpi-operator", "mpi-operator", "mpi-operator", 1}
)

// installPeer installs mpi-operator as a Deployment without pods. It may do
// everything, and is told to wait for nothing: QPS, burst and threads as no default
// of its own would be.
func (cluster *cluster) installPeer(ctx context.Context) error {
	labels := map[string]string{"app": peer.deployment}
	meta := metav1.ObjectMeta{Namespace: peer.namespace, Name: peer.deployment}
	return cluster.make(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: peer.namespace}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: peer.deployment},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: peer.namespace, Name: peer.deployment}}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				ServiceAccountName: peer.deployment, TerminationGracePeriodSeconds: new(int64(2)),
				Containers: []corev1.Container{{Name: "operator", Image: peerImage, ImagePullPolicy: corev1.PullIfNotPresent,
					Args: []string{"-alsologtostderr", "-kube-api-qps=2000", "-kube-api-burst=2000", "-threadiness=16", "-controller-queue-rate-limit=2000", "-controller-queue-burst=2000"}}},
			}},
		}})
}

// choose lets one of the operators run, and waits until it leads.
func (cluster *cluster) choose(ctx context.Context, chosen installation) error {
	other := trireme
	if chosen == trireme {
		other = peer
	}
	if led, err := cluster.leads(ctx, chosen); led || err != nil {
		return err
	}
	if err := cluster.scale(ctx, other, 0); err != nil {
		return err
	}
	// Not every leader hands its lease over, and there is nobody else to wait for.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: chosen.namespace, Name: chosen.lease}}
	if err := client.IgnoreNotFound(cluster.Delete(ctx, lease)); err != nil {
		return err
	}
	if err := cluster.scale(ctx, chosen, chosen.replicas); err != nil {
		return err
	}
	if err := until(ctx, chosen.deployment+" leads", func() (bool, error) { return cluster.leads(ctx, chosen) }); err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // Its caches fill, and the other's end is over.
	return nil
}

// scale waits until there are as many pods as asked for, and all are ready.
func (cluster *cluster) scale(ctx context.Context, installation installation, replicas int32) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: installation.namespace, Name: installation.deployment}}
	if err := cluster.Patch(ctx, deployment, patch); err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("%s has %d pods", installation.deployment, replicas), func() (bool, error) {
		pods, err := cluster.podsOf(ctx, installation)
		if err != nil || len(pods) != int(replicas) {
			return false, err
		}
		err = cluster.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return deployment.Status.ReadyReplicas == replicas, err
	})
}

func (cluster *cluster) podsOf(ctx context.Context, installation installation) ([]corev1.Pod, error) {
	var found corev1.PodList
	err := cluster.List(ctx, &found, client.InNamespace(installation.namespace))
	var pods []corev1.Pod
	for _, pod := range found.Items {
		if strings.HasPrefix(pod.Name, installation.deployment+"-") {
			pods = append(pods, pod)
		}
	}
	return pods, err
}

// leader is the pod that holds an operator's lease.
func (cluster *cluster) leader(ctx context.Context, installation installation) (*corev1.Pod, error) {
	var lease coordinationv1.Lease
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: installation.namespace, Name: installation.lease}, &lease); err != nil {
		return nil, err
	}
	pods, err := cluster.podsOf(ctx, installation)
	for _, pod := range pods {
		if lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, pod.Name) && pod.DeletionTimestamp == nil {
			return &pod, nil
		}
	}
	return nil, errors.Join(err, fmt.Errorf("%s has no leader", installation.deployment))
}

func (cluster *cluster) leads(ctx context.Context, installation installation) (bool, error) {
	pod, err := cluster.leader(ctx, installation)
	return pod != nil && err == nil, nil
}
