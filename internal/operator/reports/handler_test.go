// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
)

// oneJob has a launcher, and one worker.
type oneJob struct{}

func (oneJob) Find(context.Context, Key, reports.Sender) (Start, reports.Target, error) {
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "7", Labels: map[string]string{training.LabelReplicaType: training.RoleLauncher}}}
	return first, reports.Target{Namespace: "team", Name: "bert", Pods: 2, Pod: launcher, Owned: true}, nil
}

// handled is a handler for which every token but "invalid" is that of the launcher.
func handled(t *testing.T) (*stored, http.Handler) {
	t.Helper()
	s, api := newStored(t), fake.NewClientset()
	api.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).Spec
		return true, &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
			Authenticated: asked.Token != "invalid", Audiences: asked.Audiences, User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:team:default", Extra: map[string]authenticationv1.ExtraValue{podNameKey: {"bert-launcher"}, podUIDKey: {"7"}},
			},
		}}, nil
	})
	return s, NewHandler(s.Store, oneJob{}, api)
}

func send(handler http.Handler, method, path, token, body string) (int, metav1.Status) {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+token)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	var status metav1.Status
	_ = json.Unmarshal(answer.Body.Bytes(), &status)
	return answer.Code, status
}

// What a job may report depends on its pods: the memory of the operator is shared.
func TestActivityIsLimited(t *testing.T) {
	list := func(element string, times int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", times), ",") + "]"
	}
	path := "/apis/" + job.ReportAudience(job.KindTrainJob, "team", "bert") + protocol.ActivitySuffix
	for name, tc := range map[string]struct {
		body, wantReason, wantMessage string
		want                          int
	}{
		"a report":       {body: `{"hosts": [{"name": "a", "ranks": [{"rank": 0}]}]}`, want: http.StatusOK},
		"many ranks":     {body: `{"hosts": [{"name": "a", "ranks": ` + list("{}", 1024) + `}]}`, want: http.StatusOK},
		"too many ranks": {body: `{"hosts": [{"name": "a", "ranks": ` + list("{}", 1025) + `}]}`, want: http.StatusUnprocessableEntity, wantReason: "Invalid", wantMessage: "it has more than 1024 ranks"},
		"too many hosts": {body: `{"hosts": ` + list("{}", 100) + `}`, want: http.StatusUnprocessableEntity, wantReason: "Invalid", wantMessage: "it has more than 18 hosts"},
		"too long": {
			body: strings.Repeat(" ", 2<<20), want: http.StatusRequestEntityTooLarge, wantReason: "TooLarge", wantMessage: fmt.Sprintf("more than %d bytes", reports.LimitsOf(2).Bytes),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, handler := handled(t)
			code, status := send(handler, http.MethodPost, path, "valid", tc.body)
			if code != tc.want || string(status.Reason) != tc.wantReason || !strings.Contains(status.Message, tc.wantMessage) {
				t.Errorf("%d %s: %s; want %d %s: %s", code, status.Reason, status.Message, tc.want, tc.wantReason, tc.wantMessage)
			}
			wantRefused := 0.
			if tc.want != http.StatusOK {
				wantRefused = 1
			}
			if refused := s.count(t, "training_operator_reports_refused_total"); refused != wantRefused {
				t.Errorf("%v refusals were counted, want %v", refused, wantRefused)
			}
		})
	}
}

// Reads of the server are no reports.
func TestOnlyRefusedReportsAreCounted(t *testing.T) {
	s, handler := handled(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		path := reports.ReadPath(job.KindTrainJob, "team", "bert", reports.PartRanks)
		if method == http.MethodPost {
			path = "/apis/" + job.ReportAudience(job.KindTrainJob, "team", "bert")
		}
		if code, status := send(handler, method, path, "invalid", ""); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", method, code, status.Message)
		}
	}
	if refused := s.count(t, "training_operator_reports_refused_total"); refused != 1 {
		t.Errorf("%v refused reports were counted, want 1", refused)
	}
}
