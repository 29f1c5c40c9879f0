// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// asIntruder is a client with the intruder's rights.
func (border *border) asIntruder(t *testing.T) client.WithWatch {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(config)
	own.BearerToken = border.intruder.token
	made, err := client.NewWithWatch(own, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// tryReferences has jobs in the intruder's own namespace name what is in another: the
// operator, which may do more than the intruder, must not fetch it.
func (border *border) tryReferences(t *testing.T) {
	api := border.asIntruder(t)
	submit := func(object client.Object, name string) error {
		object.SetNamespace(border.intruder.namespace)
		object.SetName(name)
		err := api.Create(t.Context(), object)
		border.wantSilence(t, name, fmt.Sprint(err))
		if err == nil {
			t.Cleanup(func() { _ = api.Delete(context.Background(), object) })
		}
		return err
	}
	for _, name := range []string{"hidden", border.owner.namespace + "/hidden", "../" + border.owner.namespace + "/hidden"} {
		for _, kind := range []v2alpha1.RuntimeKind{v2alpha1.RuntimeKindNamespaced, v2alpha1.RuntimeKindCluster} {
			trainJob := implementations[1].trainJob(2, waiting)
			trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: kind, Name: name}
			if err := submit(trainJob, "with-a-foreign-runtime"); err == nil {
				t.Errorf("a TrainJob may name the %s %q of another namespace", kind, name)
			}
		}
	}
	for what, change := range map[string]func(*corev1.PodSpec){
		"a path of the node": func(pod *corev1.PodSpec) {
			pod.Volumes = []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/pods"}}}}
		},
		"the node's network":   func(pod *corev1.PodSpec) { pod.HostNetwork = true },
		"the node's processes": func(pod *corev1.PodSpec) { pod.HostPID = true },
		"a privileged launcher": func(pod *corev1.PodSpec) {
			pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
	} {
		mpiJob := failFast(implementations[1].job(2, waiting))
		change(&mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec)
		if err := submit(mpiJob, "with-what-it-may-not"); err == nil {
			t.Errorf("a job may have %s", what)
		}
	}
	border.tryNamesOfOthers(t, submit)
}

// tryNamesOfOthers: jobs that name a Secret and a service account by names that only
// the other namespace has, and that say to belong to the owner's job. They get nothing
// of it, and wait, or fail.
func (border *border) tryNamesOfOthers(t *testing.T, submit func(client.Object, string) error) {
	withSecret := failFast(implementations[1].job(2, waiting))
	container := &withSecret.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	container.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hidden-mpijob-ssh-key"}}}}
	withPath := failFast(implementations[1].job(2, waiting))
	launcher := &withPath.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec
	launcher.Volumes = []corev1.Volume{{
		Name: "theirs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "../../" + border.owner.namespace + "/secrets/hidden"}},
	}}
	// The kubelet fetches what is mounted, and nothing else.
	launcher.Containers[0].VolumeMounts = append(launcher.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "theirs", MountPath: "/theirs"})
	withAccount := failFast(implementations[1].job(2, waiting))
	for _, replica := range withAccount.Spec.MPIReplicaSpecs {
		replica.Template.Spec.ServiceAccountName = "hidden"
	}
	// The labels and the owner of the other's pods, under their names.
	theirs := border.jobs["MPIJob"].pods("worker")[0]
	posing := failFast(implementations[1].job(2, waiting))
	posing.Labels, posing.Annotations = theirs.Labels, theirs.Annotations
	for _, replica := range posing.Spec.MPIReplicaSpecs {
		replica.Template.Labels = theirs.Labels
	}
	var jobs []*theJob
	for name, object := range map[string]*v2beta1.MPIJob{"with-a-secret-of-others": withSecret, "with-a-path-to-others": withPath, "with-an-account-of-others": withAccount, "posing": posing} {
		if err := submit(object, name); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		jobs = append(jobs, &theJob{t: t, client: border.asIntruder(t), namespace: border.intruder.namespace, object: object})
	}
	for _, job := range jobs {
		job.until("the operator has looked at it", time.Minute, func(progress training.Progress) bool { return progress.Phase != "" })
	}
	time.Sleep(3 * time.Second)
	for _, job := range jobs {
		if progress := job.refresh(); progress.Phase == training.PhaseRunning || progress.Phase == training.PhaseSucceeded {
			t.Errorf("%s is %s", job.object.GetName(), progress.Phase)
		}
	}
	border.wantSilence(t, "a job", jobs[0].describe())
	pod := strangerPod("claims-to-belong")
	pod.Labels, pod.OwnerReferences = theirs.Labels, theirs.OwnerReferences
	if err := submit(pod, "claims-to-belong"); err == nil {
		t.Error("a pod may claim to belong to another's job")
	}
}

// nobody is a user whom every image knows: OpenSSH's client asks for a name.
const nobody = 65534

// strangerPod is a pod that does nothing, with MPI and OpenSSH in it.
func strangerPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false), RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(nobody)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "stranger", Image: implementations[1].image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "900"},
			Resources:       corev1.ResourceRequirements{Requests: small()},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}}
}

// Whoever has a pod of the name, or with the labels, of a job's does not get it counted
// or deleted: it is left alone, and the job says what is in its way.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	create := func(object client.Object) {
		t.Helper()
		object.SetNamespace(namespace)
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	inTheWay := map[string]client.Object{
		"mpi-secret": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mpi-secret-ssh-key"}, StringData: map[string]string{protocol.ClientKey: "not a key"}},
		"mpi-hosts":  &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mpi-hosts-hostfile"}, Data: map[string]string{"hostfile": "elsewhere"}},
		"mpi-worker": strangerPod("mpi-worker-worker-0"),
		"tj-secret":  &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tj-secret-ssh"}, StringData: map[string]string{protocol.ClientKey: "not a key"}},
		"tj-hosts":   &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tj-hosts-hostfile"}, Data: map[string]string{"hostfile": "elsewhere"}},
	}
	versions := map[string]string{}
	jobs := map[string]*theJob{}
	for name, object := range inTheWay {
		create(object)
		versions[name] = string(object.GetUID())
		kind := map[bool]string{true: "MPIJob", false: "TrainJob"}[strings.HasPrefix(name, "mpi")]
		job := both(2, waiting)[kind]
		job.SetName(name)
		jobs[name] = submitTo(t, api, namespace, job)
	}
	for name, job := range jobs {
		ended := job.end(time.Minute)
		if ended.Phase != training.PhaseFailed || !strings.Contains(ended.FailureMessage, "an object with this name exists that does not belong to the job") {
			t.Errorf("%s is %s: %s", name, ended.Phase, ended.FailureMessage)
		}
	}
	forged := forgePods(t, api, namespace)
	for name, object := range inTheWay {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || string(object.GetUID()) != versions[name] || object.GetDeletionTimestamp() != nil {
			t.Errorf("what was in the way of %s is not there any more: %v", name, err)
		}
		if secret, is := object.(*corev1.Secret); is && string(secret.Data[protocol.ClientKey]) != "not a key" {
			t.Errorf("%s's Secret was written to", name)
		}
	}
	for _, pod := range forged {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
			t.Errorf("the forged pod %s is not there any more: %v", pod.Name, err)
		}
	}
}

// asController is a client with the name of a controller of Kubernetes, whom the policy
// about children of jobs does not restrict.
func asController(t *testing.T) client.Client {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:forger", Groups: []string{"system:masters"}}
	found, err := client.New(own, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// forgePods creates pods that look like those of running jobs: without an owner, and as
// those of somebody's own Job, one of which even exits with 0 as a launcher does. From
// an administrator they are refused. Where they exist all the same, the jobs continue
// as if there were none. It returns the pods that nobody else deletes.
func forgePods(t *testing.T, api client.WithWatch, namespace string) (left []*corev1.Pod) {
	t.Helper()
	jobs := map[string]*theJob{}
	for kind, object := range both(2, forLong) {
		object.SetName("counted-" + strings.ToLower(kind))
		jobs[kind] = submitTo(t, api, namespace, object)
	}
	forger := asController(t)
	var foreign []*batchv1.Job
	for kind, job := range jobs {
		job.waitForLog("all ranks are up")
		for role, code := range map[string]int{training.RoleLauncher: 0, training.RoleWorker: 3} {
			labels := forgedLabels(job.pods(role)[0].Labels)
			name := fmt.Sprintf("forged-%s-%s", role, strings.ToLower(kind))
			pod := strangerPod(name)
			pod.Namespace, pod.Labels = namespace, labels
			batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: batchv1.JobSpec{
				BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: strangerPod(name).Spec},
			}}
			batch.Spec.Template.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprint("exit ", code)}
			for _, object := range []client.Object{pod, batch} {
				if err := api.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "only the Trireme operator sets") {
					t.Errorf("%T %s as an administrator: %v, want a refusal", object, name, err)
				}
				if err := forger.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			left, foreign = append(left, pod), append(foreign, batch)
		}
	}
	eventually.Succeeds(t, "the foreign Jobs have ended", func() error {
		for _, batch := range foreign {
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(batch), batch); err != nil {
				return err
			}
			if batch.Status.Succeeded+batch.Status.Failed == 0 {
				return fmt.Errorf("%s has not", batch.Name)
			}
		}
		return nil
	})
	time.Sleep(2 * time.Second)
	for kind, job := range jobs {
		progress := job.refresh()
		if progress.Phase != training.PhaseRunning || strings.Contains(fmt.Sprint(progress), "forged") {
			t.Errorf("pods that are not its own count for a %s: %+v", kind, progress)
		}
		if err := api.Delete(t.Context(), job.object); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		eventually.Succeeds(t, "its own pods are gone", func() error {
			for _, pod := range job.pods("") {
				if !strings.HasPrefix(pod.Name, "forged") {
					return fmt.Errorf("%s is there", pod.Name)
				}
			}
			return nil
		})
	}
	return left
}

// forgedLabels are those that anybody can see and copy; by the others Kubernetes' own
// controllers would adopt a pod.
func forgedLabels(from map[string]string) map[string]string {
	labels := map[string]string{}
	for name, value := range from {
		if strings.HasPrefix(name, "training.kubeflow.org/") || strings.HasPrefix(name, "app.kubernetes.io/") {
			labels[name] = value
		}
	}
	return labels
}

// trySSH knocks at the owner's workers from a pod of the intruder's, with OpenSSH: no
// NetworkPolicy holds here, so it is the worker that must refuse.
func (border *border) trySSH(t *testing.T) {
	api := border.asIntruder(t)
	pod := strangerPod("knocks")
	pod.Namespace = border.intruder.namespace
	if err := api.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	kubectl(t, fmt.Sprintf("wait --for=condition=Ready pod/knocks -n %s --timeout=60s", pod.Namespace))
	inPod := func(script string) (string, error) { return runInPod(pod.Namespace, pod.Name, script) }
	if output, err := inPod("ssh-keygen -q -t ed25519 -N '' -f /tmp/own"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for kind := range border.jobs {
		if output, err := inPod(fmt.Sprintf("echo %s | base64 -d > /tmp/%s && chmod 600 /tmp/%[2]s", base64.StdEncoding.EncodeToString(border.keyOf(t, kind)), kind)); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	attempts := map[string]attempt{}
	for kind, job := range border.jobs {
		other := map[string]string{"MPIJob": "TrainJob", "TrainJob": "MPIJob"}[kind]
		maps.Copy(attempts, attemptsAt(kind, other, job.pods("worker")[0].Status.PodIP))
	}
	var script strings.Builder
	for what, attempt := range attempts {
		// In one line: bash writes lines, and those of others would come between.
		fmt.Fprintf(&script, "{ out=$(timeout 30 ssh -F /dev/null -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=INFO -o NumberOfPasswordPrompts=1 %s < /dev/null 2>&1); code=$?; echo \"=== %s === $code ${out//$'\\n'/ }\"; } &\n", attempt.line, what)
	}
	output, err := inPod(script.String() + "wait")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	answers := map[string]string{}
	parts := strings.Split(output, "=== ")
	for i := 1; i+1 < len(parts); i += 2 {
		answers[strings.TrimSpace(parts[i])] = parts[i+1]
	}
	for what, attempt := range attempts {
		answer := answers[what]
		if letIn := strings.Contains(answer, "let in"); letIn != attempt.letIn || !strings.Contains(answer, attempt.words) {
			t.Errorf("%s: %q, want %q", what, answer, attempt.words)
		}
	}
}

// runInPod runs a script in a pod's first container.
func runInPod(namespace, pod, script string) (string, error) {
	command := exec.Command(clusterTool(), "kubectl", "exec", "-i", "-n", namespace, pod, "--", "bash", "-s")
	command.Dir, command.Stdin = repository, strings.NewReader(script)
	output, err := command.CombinedOutput()
	return string(output), err
}

// attempt is a way to call ssh, and what it must say.
type attempt struct {
	line, words string
	letIn       bool
}

// attemptsAt are those at a worker of a kind: with its own key, of which a little is let
// in, and with everything else, of which nothing is.
func attemptsAt(kind, other, address string) map[string]attempt {
	attempts := map[string]attempt{}
	at := func(what, options, command, words string) {
		attempts[kind+" and "+what] = attempt{line: options + address + " " + command, words: words, letIn: words == "let in"}
	}
	own := "-i /tmp/" + kind + " -o BatchMode=yes "
	// The key is good, and so it is the key that the others lack.
	at("its key", own+"mpi@", "echo let in", "let in")
	at("its key, to another port", own+"-W 127.0.0.1:2222 mpi@", "", "is not allowed")
	at("its key, to another host", own+"-W 10.0.0.1:443 mpi@", "", "is not allowed")
	at("its key, back to the stranger", own+"-N -o ExitOnForwardFailure=yes -R 9999:127.0.0.1:1 mpi@", "", "remote port forwarding failed")
	at("its key, for files", own+"-s mpi@", "sftp", "subsystem request failed")
	at("its key, with a terminal", own+"-tt mpi@", "true", "PTY allocation request failed")
	const denied = "Permission denied (publickey)"
	at("a key of one's own", "-i /tmp/own -o BatchMode=yes mpi@", "echo let in", denied)
	at("the user root", "-i /tmp/own -o BatchMode=yes root@", "echo let in", denied)
	at("a launcher's user", "-i /tmp/own -o BatchMode=yes launch-x@", "echo let in", denied)
	at("a password", "-o PubkeyAuthentication=no -o PreferredAuthentications=password mpi@", "echo let in", denied)
	at("answers to questions", "-o PubkeyAuthentication=no -o PreferredAuthentications=keyboard-interactive mpi@", "echo let in", denied)
	at("nothing at all", "-o PubkeyAuthentication=no -o PreferredAuthentications=none -o BatchMode=yes mpi@", "echo let in", denied)
	at("the key of another job", "-i /tmp/"+other+" -o BatchMode=yes mpi@", "echo let in", denied)
	return attempts
}

// keyOf is the key with which a job's launcher logs in.
func (border *border) keyOf(t *testing.T, kind string) []byte {
	t.Helper()
	name := map[string]string{"MPIJob": "hidden-mpijob-ssh-key", "TrainJob": "hidden-trainjob-ssh"}[kind]
	secret := &corev1.Secret{}
	if err := border.jobs[kind].client.Get(t.Context(), client.ObjectKey{Namespace: border.owner.namespace, Name: name}, secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data[protocol.ClientKey]
}
