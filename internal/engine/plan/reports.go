// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// reportVolume has the token and the CA for reports.
	reportVolume = "trireme-status"
	// reportTokenSeconds is the lifetime of a token. The kubelet renews it earlier.
	reportTokenSeconds = 3600
)

// Reports is the operator's port for reports.
type Reports struct {
	// URL of the port, without a path.
	URL string
	// CA that signed the port's certificate, in PEM.
	CA []byte
	// Namespace of the operator's pods, and their Port.
	Namespace string
	Port      int32
}

// addReports lets the programs and the agent of a pod report progress, in the way that
// Kubeflow Trainer defines. A user who sets one of the variables, or mounts something in
// the directory, reports somewhere else: then nothing is added.
func addReports(pod *corev1.PodSpec, j *job.Job, secret string, reports *Reports) {
	container := &pod.Containers[0]
	if reports == nil || isMounted(container, protocol.StatusDirectory) || slices.ContainsFunc(container.Env, isReportVariable) {
		return
	}
	for _, variable := range []corev1.EnvVar{
		{Name: protocol.StatusURLVariable, Value: reports.URL + j.ReportPath()},
		{Name: protocol.StatusCAVariable, Value: path.Join(protocol.StatusDirectory, protocol.StatusCA)},
		{Name: protocol.StatusTokenVariable, Value: path.Join(protocol.StatusDirectory, protocol.StatusToken)},
	} {
		addVariable(container, variable)
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: reportVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: protocol.StatusToken, Audience: j.ReportAudience(), ExpirationSeconds: new(int64(reportTokenSeconds)),
			}},
			// The CA is in the job's Secret, because kubelets watch that already. The Secret of a
			// job that an older operator started has no CA.
			{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: secret},
				Items:                []corev1.KeyToPath{{Key: protocol.StatusCA, Path: protocol.StatusCA}}, Optional: new(true),
			}},
		},
	}}})
	mount(container, reportVolume, protocol.StatusDirectory)
}

func isReportVariable(variable corev1.EnvVar) bool {
	return slices.Contains([]string{protocol.StatusURLVariable, protocol.StatusCAVariable, protocol.StatusTokenVariable}, variable.Name)
}

// secretData is the part of the Secret's data that is not random.
func secretData(env Environment) map[string][]byte {
	if env.Reports == nil {
		return nil
	}
	return map[string][]byte{protocol.StatusCA: env.Reports.CA}
}

// ReportEgress allows connections to the operator's port for reports.
func ReportEgress(namespace string, port int32) networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "trireme", "app.kubernetes.io/component": "operator"}},
		}},
		Ports: Ports(corev1.ProtocolTCP, []int32{port}),
	}
}
