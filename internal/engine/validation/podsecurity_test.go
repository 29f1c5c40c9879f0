// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
)

func labelled(pairs ...string) func(*ClusterFacts) {
	return func(in *ClusterFacts) {
		in.NamespaceLabels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			in.NamespaceLabels["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
		}
	}
}

func TestPodSecurity(t *testing.T) {
	// Not even baseline has hostNetwork; only restricted minds root; and keepalive
	// was taken up into the harmless settings with Kubernetes 1.29.
	hostNetwork := func(pod *corev1.PodSpec) { pod.HostNetwork = true }
	root := func(pod *corev1.PodSpec) {
		pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(true)}
	}
	keepalive := func(pod *corev1.PodSpec) {
		pod.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_keepalive_time", Value: "60"}}}
	}
	const (
		hostNetworkDetail = "host namespaces (hostNetwork=true)"
		rootDetail        = "runAsUser=0 (pod must not set runAsUser=0)"
		keepaliveDetail   = "forbidden sysctls (net.ipv4.tcp_keepalive_time)"
	)
	violates := func(level, detail string) []string {
		return []string{workerTemplate + `: Forbidden: worker pods violate PodSecurity "` + level + `" of the namespace: ` + detail}
	}
	wouldViolate := func(detail string) []string {
		return []string{workerTemplate + `: worker pods would violate PodSecurity "restricted:latest": ` + detail}
	}
	tests := map[string]struct {
		namespace    func(*ClusterFacts)
		worker       func(*corev1.PodSpec)
		warns        bool
		want         []string
		wantWarnings []string
	}{
		"restricted, and what the templates leave open is closed": {namespace: labelled("enforce", "restricted")},
		"restricted minds root":                                   {namespace: labelled("enforce", "restricted"), worker: root, want: violates("restricted:latest", rootDetail)},
		"restricted minds the host":                               {namespace: labelled("enforce", "restricted"), worker: hostNetwork, want: violates("restricted:latest", hostNetworkDetail)},
		"baseline does not mind root":                             {namespace: labelled("enforce", "baseline"), worker: root, wantWarnings: wouldViolate(rootDetail)},
		"baseline minds the host":                                 {namespace: labelled("enforce", "baseline"), worker: hostNetwork, want: violates("baseline:latest", hostNetworkDetail)},
		"privileged minds nothing":                                {namespace: labelled("enforce", "privileged"), worker: hostNetwork, wantWarnings: wouldViolate(hostNetworkDetail)},
		"without a label all is allowed":                          {namespace: labelled(), worker: hostNetwork, wantWarnings: wouldViolate(hostNetworkDetail)},
		"without labels all is allowed":                           {namespace: func(*ClusterFacts) {}, worker: hostNetwork, wantWarnings: wouldViolate(hostNetworkDetail)},
		"labels to warn and audit are none":                       {namespace: labelled("warn", "restricted", "audit", "restricted"), worker: root, wantWarnings: wouldViolate(rootDetail)},
		"an unknown level is the strictest":                       {namespace: labelled("enforce", "Baseline"), worker: root, want: violates("restricted:latest", rootDetail)},
		"an empty level is the strictest":                         {namespace: labelled("enforce", ""), worker: root, want: violates("restricted:latest", rootDetail)},
		"a volume of no kind is an emptyDir": {
			namespace: labelled("enforce", "restricted"), worker: func(pod *corev1.PodSpec) { pod.Volumes = []corev1.Volume{{Name: "scratch"}} },
		},

		"a version from before":         {namespace: labelled("enforce", "baseline", "enforce-version", "v1.28"), worker: keepalive, want: violates("baseline:v1.28", keepaliveDetail)},
		"a version from then":           {namespace: labelled("enforce", "baseline", "enforce-version", "v1.29"), worker: keepalive},
		"a version from the future":     {namespace: labelled("enforce", "baseline", "enforce-version", "v1.999"), worker: keepalive},
		"the latest version":            {namespace: labelled("enforce", "baseline", "enforce-version", "latest"), worker: keepalive},
		"an unknown version is latest":  {namespace: labelled("enforce", "baseline", "enforce-version", "1.28"), worker: keepalive},
		"a version without a level":     {namespace: labelled("enforce-version", "v1.28"), worker: keepalive},
		"a future version is named too": {namespace: labelled("enforce", "baseline", "enforce-version", "v1.999"), worker: hostNetwork, want: violates("baseline:v1.999", hostNetworkDetail)},

		"a violation is a warning where it shall be": {
			namespace: labelled("enforce", "baseline"), worker: hostNetwork, warns: true,
			wantWarnings: []string{workerTemplate + `: worker pods would violate PodSecurity "baseline:latest": ` + hostNetworkDetail},
		},
		"of restricted too": {namespace: labelled("enforce", "restricted"), worker: root, warns: true, wantWarnings: wouldViolate(rootDetail)},
		"of an old version too": {
			namespace: labelled("enforce", "baseline", "enforce-version", "v1.28"), worker: keepalive, warns: true,
			wantWarnings: []string{workerTemplate + `: worker pods would violate PodSecurity "baseline:v1.28": ` + keepaliveDetail},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob()
			if tc.worker != nil {
				tc.worker(workerPod(job))
			}
			rules := configured(func(configuration *config.Config) {
				if tc.warns {
					configuration.Admission.PodSecurity = config.PodSecurityWarn
				}
			})
			wantFindings(t, rules.CreateMPIJob(job, anywhere(tc.namespace)), tc.want, tc.wantWarnings)
		})
	}
}

// A TrainJob's pods stand in its runtime.
func TestPodSecurityOfARuntime(t *testing.T) {
	in := anywhere(labelled("enforce", "baseline"), withRuntime(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtimeLauncher(runtime).Spec.HostPID = true
		runtimeWorker(runtime).Spec.HostIPC = true
	}))
	wantFindings(t, rules().CreateTrainJob(trainJob(), in), []string{
		`spec.runtimeRef.name: Forbidden: launcher pods violate PodSecurity "baseline:latest" of the namespace: host namespaces (hostPID=true)`,
		`spec.runtimeRef.name: Forbidden: worker pods violate PodSecurity "baseline:latest" of the namespace: host namespaces (hostIPC=true)`,
	}, nil)
}

// Where the operator names no user, restricted is content without one.
func TestPodSecurityWithAndWithoutAUser(t *testing.T) {
	for name, user := range map[string]*int64{"none": nil, "1000": new(int64(1000))} {
		t.Run(name, func(t *testing.T) {
			rules := configured(func(configuration *config.Config) { configuration.Defaults.RunAsUser = user })
			wantFindings(t, rules.CreateMPIJob(mpiJob(), anywhere(labelled("enforce", "restricted"))), nil, nil)
		})
	}
}

// A launcher that is alone runs no sshd, so it is closed like any other.
func TestPodSecurityOfALauncherAlone(t *testing.T) {
	rules := configured(func(configuration *config.Config) { configuration.Limits.MinWorkers = 0 })
	wantFindings(t, rules.CreateMPIJob(mpiJob(noWorkers), anywhere(labelled("enforce", "restricted"))), nil, nil)
}

// An init container counts as well.
func TestPodSecurityOfInitContainers(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		workerPod(mpiJob).InitContainers = []corev1.Container{{
			Name: "tune", Image: "tune:1", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_NICE"}, Drop: []corev1.Capability{"ALL"}}},
		}}
	})
	wantFindings(t, rules().CreateMPIJob(job, anywhere(labelled("enforce", "baseline"))), []string{
		workerTemplate + `: Forbidden: worker pods violate PodSecurity "baseline:latest" of the namespace: non-default capabilities (container "tune" must not include "SYS_NICE" in securityContext.capabilities.add)`,
	}, nil)
}
