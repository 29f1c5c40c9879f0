// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/activity"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const reportHost = "trireme-reports.trireme-system.svc"

// receiver is the operator's port for reports, as pods of jobs reach it.
type receiver struct {
	*place
	address string
	client  *http.Client
}

// newReceiver starts an operator that receives reports. It announces an address that does
// not exist, because loopback addresses are not allowed in an EndpointSlice.
func newReceiver(t testing.TB) *receiver {
	t.Helper()
	t.Setenv("POD_IP", "192.0.2.7")
	cluster := newCluster(t, withJobSet)
	cluster.settings.Reports.Port = int32(deployed.FreePort(t))
	cluster.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: cluster.settings.Reports.ServiceName},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: cluster.settings.Reports.Port}}},
	})
	cluster.start(t)
	cluster.waitUntilServed(t)
	return &receiver{place: cluster.newPlace(t, nil), address: fmt.Sprintf("localhost:%d", cluster.settings.Reports.Port)}
}

// trust makes the client trust the CA that a job's pods get.
func (r *receiver) trust(j *v2beta1.MPIJob) {
	r.Helper()
	secret := &corev1.Secret{}
	if err := r.Get(secret, j.Name+"-ssh-key"); err != nil {
		r.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(secret.Data[protocol.StatusCA]) {
		r.Fatalf("Secret %s has no CA", secret.Name)
	}
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: reportHost}}}
}

// token is a token for a pod, as kubelets request it for a projected volume.
func (r *receiver) token(pod *corev1.Pod, audience string) string {
	r.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "default"}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: new(int64(3600))}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	if err := r.Client.SubResource("token").Create(r.Context(), account, request); err != nil {
		r.Fatal(err)
	}
	return request.Status.Token
}

func audienceOf(j *v2beta1.MPIJob) string {
	return job.ReportAudience(job.KindMPIJob, j.Namespace, j.Name)
}

// post sends a report and returns the status code and the answer.
func (r *receiver) post(j *v2beta1.MPIJob, suffix, token string, body any) (int, string) {
	r.Helper()
	content, isText := body.(string)
	if !isText {
		encoded, err := json.Marshal(body)
		if err != nil {
			r.Fatal(err)
		}
		content = string(encoded)
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://"+r.address+"/apis/"+audienceOf(j)+suffix, strings.NewReader(content))
	if err != nil {
		r.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := r.client.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return response.StatusCode, string(bytes.TrimSpace(answer))
}

// progress is a report of Kubeflow Trainer's protocol, as Hugging Face's Trainer sends it.
func progress(percentage int, metrics ...string) string {
	var list []string
	for i := 0; i < len(metrics); i += 2 {
		list = append(list, fmt.Sprintf(`{"name": %q, "value": %q}`, metrics[i], metrics[i+1]))
	}
	return fmt.Sprintf(`{"trainerStatus": {"progressPercentage": %d, "estimatedRemainingSeconds": 795, "metrics": [%s], "lastUpdatedTime": "2026-11-18T12:00:00Z"}}`,
		percentage, strings.Join(list, ", "))
}

func activityOf(hosts ...string) *protocol.Activity {
	report := &protocol.Activity{Time: time.Now()}
	for i, host := range hosts {
		report.Hosts = append(report.Hosts, protocol.Host{Name: host, Ranks: []protocol.Rank{{Rank: i, PID: 40 + i, State: "R", Started: time.Now().Add(-time.Second)}}})
	}
	return report
}

func (r *receiver) untilStatus(j *v2beta1.MPIJob, what string, holds func(*training.Progress) bool) {
	r.Helper()
	r.Until(what, j, func() error {
		if !holds(&j.Status.Progress) {
			return fmt.Errorf("trainerStatus %+v, ranks %+v", j.Status.TrainerStatus, j.Status.Ranks)
		}
		return nil
	})
}

func TestReports(t *testing.T) {
	r := newReceiver(t)
	one, other := mpiJob("one"), mpiJob("other")
	r.Create(one)
	r.Create(other)
	launcher, workers := r.runs(one)
	otherLauncher, _ := r.runs(other)
	r.trust(one)
	eventually.Succeeds(t, "the leader announces its address", func() error { return r.announced() })
	ofWorker, ofLauncher := r.token(workers[0], audienceOf(one)), r.token(launcher, audienceOf(one))

	t.Run("who may report", func(t *testing.T) {
		for name, tc := range map[string]struct {
			token, suffix string
			body          any
			want          int
			wantReason    string
		}{
			"no token":                {body: progress(1), want: http.StatusUnauthorized, wantReason: "NoToken"},
			"no real token":           {token: "a.b.c", body: progress(1), want: http.StatusUnauthorized, wantReason: "InvalidToken"},
			"another audience":        {token: r.token(workers[0], audienceOf(other)), body: progress(1), want: http.StatusUnauthorized, wantReason: "InvalidToken"},
			"not bound to a pod":      {token: r.token(nil, audienceOf(one)), body: progress(1), want: http.StatusForbidden, wantReason: string(reports.RefusedUnbound)},
			"a pod of another job":    {token: r.token(otherLauncher, audienceOf(one)), body: progress(99), want: http.StatusForbidden, wantReason: string(reports.RefusedOtherJob)},
			"a worker for all ranks":  {token: ofWorker, suffix: protocol.ActivitySuffix, body: activityOf("one-worker-0"), want: http.StatusForbidden, wantReason: string(reports.RefusedRole)},
			"no report":               {token: ofWorker, body: "{}", want: http.StatusUnprocessableEntity, wantReason: "Invalid"},
			"too much":                {token: ofWorker, body: progress(101), want: http.StatusUnprocessableEntity, wantReason: "Invalid"},
			"too many hosts":          {token: ofLauncher, suffix: protocol.ActivitySuffix, body: activityOf(make([]string, 100)...), want: http.StatusUnprocessableEntity, wantReason: "Invalid"},
			"too long, for all ranks": {token: ofLauncher, suffix: protocol.ActivitySuffix, body: strings.Repeat(" ", 3<<20), want: http.StatusRequestEntityTooLarge, wantReason: "TooLarge"},
			"too long":                {token: ofWorker, body: strings.Repeat(" ", 300<<10), want: http.StatusRequestEntityTooLarge, wantReason: "TooLarge"},
		} {
			code, answer := r.post(one, tc.suffix, tc.token, tc.body)
			if code != tc.want || !strings.Contains(answer, fmt.Sprintf("%q", tc.wantReason)) {
				t.Errorf("%s: %d %s, want %d %s", name, code, answer, tc.want, tc.wantReason)
			}
		}
	})
	t.Run("progress", func(t *testing.T) {
		if code, answer := r.post(one, "", ofWorker, progress(45, "loss", "0.23")); code != http.StatusOK || answer != progress(45, "loss", "0.23") {
			t.Fatalf("%d %s", code, answer)
		}
		r.untilStatus(one, "the status shows the progress", func(shown *training.Progress) bool {
			status := shown.TrainerStatus
			return status != nil && *status.ProgressPercentage == 45 && *status.EstimatedRemainingSeconds == 795 &&
				slices.Equal(status.Metrics, []training.TrainerMetric{{Name: "loss", Value: "0.23"}}) && status.LastUpdatedTime != nil
		})
	})
	t.Run("ranks", func(t *testing.T) {
		code, answer := r.post(one, protocol.ActivitySuffix, ofLauncher, activityOf("one-worker-0", "one-worker-1"))
		var reply protocol.ActivityReply
		if err := json.Unmarshal([]byte(answer), &reply); err != nil || code != http.StatusOK || reply.IntervalSeconds < 1 {
			t.Fatalf("%d %s (%v)", code, answer, err)
		}
		r.untilStatus(one, "the status shows the ranks", func(shown *training.Progress) bool {
			return shown.Ranks != nil && shown.Ranks.Running == 2 && shown.Ranks.Total == 2 && slices.Contains(stepsOf(shown), training.StepFirstRankUp)
		})
	})
	t.Run("silence", func(t *testing.T) { r.wantSilence(one, ofLauncher) })
	t.Run("many reports", func(t *testing.T) { r.wantFewWrites(one, ofWorker) })
	t.Run("a deleted pod", func(t *testing.T) {
		r.Delete(workers[0])
		eventually.Succeeds(t, "the pod may not report any more", func() error {
			if code, answer := r.post(one, "", ofWorker, progress(50)); code == http.StatusOK {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	})
}

func (r *receiver) announced() error {
	var slice discoveryv1.EndpointSlice
	key := client.ObjectKey{Namespace: deployed.Namespace, Name: r.settings.Reports.ServiceName}
	if err := r.Client.Get(context.Background(), key, &slice); err != nil {
		return err
	}
	if len(slice.Endpoints) != 1 || !slices.Equal(slice.Endpoints[0].Addresses, []string{"192.0.2.7"}) || *slice.Ports[0].Port != r.settings.Reports.Port {
		return fmt.Errorf("the EndpointSlice has %+v", slice.Endpoints)
	}
	return nil
}

// wantSilence sends reports that say nothing new: they cause no write at all. The last
// report is different, and its write shows that the others would have been seen.
func (r *receiver) wantSilence(j *v2beta1.MPIJob, token string) {
	r.Helper()
	if err := r.Get(j, j.Name); err != nil {
		r.Fatal(err)
	}
	output, err := activity.NewOutput("", false)
	if err != nil {
		r.Fatal(err)
	}
	now := time.Now()
	for step := range 2 {
		output.Line(fmt.Appendf(nil, `trireme: {"step": %d, "of": 1000, "loss": 0.5}`, 500+step), now.Add(time.Duration(step)*time.Minute))
	}
	same := activityOf("one-worker-0", "one-worker-1")
	report := func(after time.Duration) {
		same.Time = now.Add(after)
		same.Progress = output.Progress(same.Time)
		if code, answer := r.post(j, protocol.ActivitySuffix, token, same); code != http.StatusOK {
			r.Fatalf("%d %s", code, answer)
		}
	}
	report(time.Minute)
	r.untilStatus(j, "the status shows the step", func(shown *training.Progress) bool {
		return shown.TrainerStatus.Step != nil && *shown.TrainerStatus.Step == 501
	})
	before := j.ResourceVersion
	for i := range 20 {
		report(time.Duration(i+2) * time.Minute)
	}
	// A write that these reports had caused would come within this time.
	time.Sleep(reports.WritePause + time.Second)
	if err := r.Get(j, j.Name); err != nil {
		r.Fatal(err)
	}
	if j.ResourceVersion != before {
		r.Errorf("reports without anything new changed the job: %+v", j.Status.Progress)
	}
	if code, answer := r.post(j, protocol.ActivitySuffix, token, activityOf("one-worker-0")); code != http.StatusOK {
		r.Fatalf("%d %s", code, answer)
	}
	r.untilStatus(j, "the status shows one rank", func(shown *training.Progress) bool { return shown.Ranks.Running == 1 })
}

// wantFewWrites sends a thousand different reports. They may cause one write now, and one
// in each 10 seconds that they take.
func (r *receiver) wantFewWrites(j *v2beta1.MPIJob, token string) {
	r.Helper()
	if err := r.Get(j, j.Name); err != nil {
		r.Fatal(err)
	}
	watch, err := r.Client.Watch(r.Context(), &v2beta1.MPIJobList{}, client.InNamespace(r.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: j.ResourceVersion}})
	if err != nil {
		r.Fatal(err)
	}
	defer watch.Stop()
	const last = 1000
	started := time.Now()
	for step := 1; step <= last; step++ {
		body := fmt.Sprintf(`{"trainerStatus": {"step": %d, "totalSteps": %d}}`, step, last)
		if code, answer := r.post(j, "", token, body); code != http.StatusOK {
			r.Fatalf("%d %s", code, answer)
		}
	}
	allowed := 2 + int(time.Since(started)/reports.WritePause)
	writes := 0
	for event := range watch.ResultChan() {
		changed := event.Object.(*v2beta1.MPIJob)
		if changed.UID != j.UID {
			continue
		}
		writes++
		if status := changed.Status.TrainerStatus; status.Step != nil && *status.Step == last {
			break
		}
	}
	if writes > allowed {
		r.Errorf("%d reports in %s caused %d writes, at most %d are allowed", last, time.Since(started), writes, allowed)
	}
}
