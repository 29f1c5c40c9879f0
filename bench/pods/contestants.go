// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/operator/sshkey"
)

// contestant is a way to run the same ranks on the same image.
type contestant struct {
	name, short, namespace string
	// how it runs, for who reads the table.
	how string
	// operator that looks after it; none for bare pods.
	operator *installation
	// prepare makes what is there before the clock starts; nil if nothing is.
	prepare func(name string, workers int32) ([]client.Object, error)
	// submit is what the clock starts with.
	submit func(name string, workers int32) []client.Object
}

// Names of the contestants.
const (
	asMPIJob    = "Trireme MPIJob"
	asTrainJob  = "Trireme TrainJob"
	asPeer      = "mpi-operator"
	asBare      = "bare pods"
	asBareAgent = "bare pods, agent"
)

// contestants of the start. Ours are what any user may run: no root, a user that no
// image knows, no sshd. mpi-operator's need root, and an image with an sshd. Bare
// pods are the limit: a client makes all of them at once, with keys, Service and
// hosts that are there before, and mpirun starts as soon as every sshd answers. Bare
// pods with the agent are the stricter limit: exactly the pods that the operator
// would make, without the operator.
var contestants = []contestant{
	{name: asMPIJob, short: "mpi", how: "restricted, random user, no sshd in the image",
		namespace: restricted, operator: &trireme, submit: oneObject(ourMPIJob)},
	{name: asTrainJob, short: "train", how: "restricted, random user, no sshd in the image",
		namespace: restricted, operator: &trireme, submit: oneObject(ourTrainJob)},
	{name: asPeer, short: "peer", how: "as root, OpenSSH; the launcher waits until each sshd answers, since mpirun would fail before",
		namespace: privileged, operator: &peer, submit: oneObject(peerMPIJob)},
	{name: asBare, short: "bare", how: "as root, OpenSSH; all pods made at once by a client, keys, Service and host names there before; waits as mpi-operator's",
		namespace: privileged, prepare: bareSupport, submit: barePods},
	{name: asBareAgent, short: "agent", how: "the pods that Trireme makes of the MPIJob, made at once by a client, with all else there before",
		namespace: privileged, prepare: agentSupport, submit: agentPods},
}

func oneObject[T client.Object](make func(string, int32) T) func(string, int32) []client.Object {
	return func(name string, workers int32) []client.Object { return []client.Object{make(name, workers)} }
}

//go:embed rank.py
var rankProgram string

// mpirun is the same for all: a rank on each worker.
func mpirun(workers int32, more ...string) []string {
	return slices.Concat([]string{"mpirun", "-np", fmt.Sprint(workers), "--bind-to", "none"}, more, []string{"python3", "-c", rankProgram})
}

// randomUser is one that no image knows.
const randomUser = 1000680000

func podTemplate(name string, user *int64, command []string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		// Ours have none unless they ask for it; the others would wait for theirs.
		AutomountServiceAccountToken: new(false),
		SecurityContext:              &corev1.PodSecurityContext{RunAsUser: user},
		Containers: []corev1.Container{{
			Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")}},
		}},
	}}
}

func mpiJob(namespace, name string, workers int32, launcher, worker corev1.PodTemplateSpec) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2beta1.MPIJobSpec{
		SlotsPerWorker: new(int32(1)),
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Replicas: new(int32(1)), Template: launcher},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: &workers, Template: worker},
		},
	}}
}

func ourMPIJob(name string, workers int32) *v2beta1.MPIJob {
	return mpiJob(restricted, name, workers, podTemplate("launcher", new(int64(randomUser)), mpirun(workers)), podTemplate("worker", new(int64(randomUser)), nil))
}

func ourTrainJob(name string, workers int32) *v2alpha1.TrainJob {
	resources := podTemplate("", nil, nil).Spec.Containers[0].Resources
	return &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: restricted, Name: name}, Spec: v2alpha1.TrainJobSpec{
		RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "openmpi"},
		Trainer:    v2alpha1.Trainer{NumNodes: &workers, SlotsPerWorker: new(int32(1)), Image: image, Command: mpirun(workers), ResourcesPerNode: &resources},
		Launcher:   &v2alpha1.Launcher{Resources: &resources},
	}}
}

// runtimeOf is a runtime with these templates.
func runtimeOf(name string, launcher, worker corev1.PodTemplateSpec) *v2alpha1.TrainingRuntime {
	return &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: restricted, Name: name}, Spec: v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: launcher}, {Name: v2alpha1.ReplicatedJobWorker, Template: worker},
		}}},
	}}
}

func openMPIRuntime() *v2alpha1.TrainingRuntime {
	return runtimeOf("openmpi", podTemplate("launcher", new(int64(randomUser)), nil), podTemplate("worker", new(int64(randomUser)), nil))
}

// sshd of root, with the job's own key for the host's, as images for mpi-operator
// have it. Without PAM it is at its quickest.
var sshd = []string{"sh", "-c", "mkdir -p -m 0755 /run/sshd && exec /usr/sbin/sshd -De -o HostKey=/root/.ssh/id_rsa -o StrictModes=no -o PermitRootLogin=yes -o UsePAM=no -o PidFile=none"}

// afterSSH starts mpirun once every worker's sshd answers: without that mpirun
// fails, and the launcher is started again and again, which would be measured.
func afterSSH(hosts []string, command []string) []string {
	script := `printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' >/etc/ssh/ssh_config.d/bench.conf
for host in ` + strings.Join(hosts, " ") + `; do until (exec 3<>/dev/tcp/$host/22) 2>/dev/null; do sleep 0.05; done; done
exec "$@"`
	return slices.Concat([]string{"bash", "-c", script, "launcher"}, command)
}

func workerHosts(name, subdomain, namespace string, workers int32) []string {
	var hosts []string
	for i := range workers {
		hosts = append(hosts, fmt.Sprintf("%s-worker-%d.%s.%s.svc", name, i, subdomain, namespace))
	}
	return hosts
}

func asRoot(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	container := &template.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: "OMPI_ALLOW_RUN_AS_ROOT", Value: "1"}, corev1.EnvVar{Name: "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", Value: "1"},
		corev1.EnvVar{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "true"})
	return template
}

func peerMPIJob(name string, workers int32) *v2beta1.MPIJob {
	launcher := podTemplate("launcher", new(int64(0)), afterSSH(workerHosts(name, name, privileged, workers), mpirun(workers)))
	return mpiJob(privileged, name, workers, asRoot(launcher), asRoot(podTemplate("worker", new(int64(0)), sshd)))
}

// bareService is what gives bare pods their names in DNS.
const bareService = "bare"

// bareSupport is a Service and keys, in the form that sshd wants.
func bareSupport(name string, workers int32) ([]client.Object, error) {
	key, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		return nil, err
	}
	return []client.Object{service(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: privileged, Name: name},
		Data: map[string][]byte{"id_rsa": key.Private, "id_rsa.pub": key.Public, "authorized_keys": key.Public}}}, nil
}

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: privileged, Name: bareService},
		Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"bench": bareService}, PublishNotReadyAddresses: true}}
}

func barePods(name string, workers int32) []client.Object {
	hosts := workerHosts(name, bareService, privileged, workers)
	launcher := podTemplate("launcher", new(int64(0)), afterSSH(hosts, mpirun(workers, "-host", strings.Join(hosts, ","))))
	worker := podTemplate("worker", new(int64(0)), sshd)
	for _, template := range []*corev1.PodTemplateSpec{&launcher, &worker} {
		*template = asRoot(*template)
		template.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o600))}}}}
		template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/root/.ssh"}}
	}
	return podsOf(name, workers, launcher, worker)
}

// podsOf are the pods of a run without an operator: workers, and then the launcher.
func podsOf(name string, workers int32, launcher, worker corev1.PodTemplateSpec) []client.Object {
	var pods []client.Object
	for i := range workers {
		pods = append(pods, barePod(fmt.Sprintf("%s-worker-%d", name, i), worker))
	}
	return append(pods, barePod(name+"-launcher", launcher))
}

func barePod(name string, template corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: privileged, Name: name, Labels: map[string]string{"bench": bareService}}, Spec: *template.Spec.DeepCopy()}
	pod.Spec.Hostname, pod.Spec.Subdomain = name, bareService
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{fmt.Sprintf("%s.%s.svc.cluster.local", bareService, privileged)}}
	return pod
}

// agentSupport is what the operator would make around the pods.
func agentSupport(name string, workers int32) ([]client.Object, error) {
	clientKey, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		return nil, err
	}
	hostKey, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for i := range workers {
		hosts = append(hosts, fmt.Sprintf("%s-worker-%d", name, i))
	}
	meta := metav1.ObjectMeta{Namespace: privileged, Name: name}
	return []client.Object{service(),
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"hostfile": plan.Hostfile(modelOf(name, workers), hosts)}},
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
			protocol.ClientKey: clientKey.Private, protocol.ClientPublicKey: clientKey.Public, protocol.AuthorizedKeys: clientKey.Public,
			protocol.HostKey: hostKey.Private, protocol.HostPublicKey: hostKey.Public,
		}}}, nil
}

func modelOf(name string, workers int32) *job.Job {
	return job.FromMPIJob(ourMPIJob(name, workers), job.Defaults{})
}

// agentPods are the pods that the operator would make of the MPIJob.
func agentPods(name string, workers int32) []client.Object {
	model := modelOf(name, workers)
	parts := plan.Parts{Secret: name, Hostfile: name, Delivery: plan.Delivery{Method: plan.ImageVolume, Image: agentImage}}
	return podsOf(name, workers, plan.LauncherPod(model, parts), plan.WorkerPod(model, parts))
}

// makeRuntime is for TrainJobs.
func (bench *bench) makeRuntime(ctx context.Context, runtime *v2alpha1.TrainingRuntime) error {
	return until(ctx, "the operator takes runtimes", func() (bool, error) {
		err := bench.cluster.make(ctx, runtime.DeepCopy())
		return err == nil, err
	})
}
