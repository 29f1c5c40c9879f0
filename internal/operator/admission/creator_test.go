// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// noted is a job with annotations, of names and values in turn.
func noted(job client.Object, annotations ...string) client.Object {
	values := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		values[annotations[i]] = annotations[i+1]
	}
	job.SetAnnotations(values)
	return job
}

// labelled is a job with the labels that every job has.
func labelled(object client.Object, more ...string) client.Object {
	labels := map[string]string{}
	for _, label := range validation.OwnLabels(job.Kind(kindOf(object)), object.GetName()) {
		labels[label.Key] = label.Value
	}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	object.SetLabels(labels)
	return object
}

// Jobs are found by their labels, also those that were stored without them. Labels of
// users stay, and wrong ones are left to the rules.
func TestLabelsOfJobs(t *testing.T) {
	const (
		both = `[{"op":"add","path":"/metadata/labels","value":{"training.kubeflow.org/job-name":"%s","training.kubeflow.org/job-type":"%s"}}]`
		name = `{"op":"add","path":"/metadata/labels/training.kubeflow.org~1job-name","value":"resnet"}`
		kind = `{"op":"add","path":"/metadata/labels/training.kubeflow.org~1job-type","value":"mpijob"}`
		only = `[{"op":"add","path":"/metadata/labels","value":{"training.kubeflow.org/job-type":"mpijob"}}]`
	)
	with := func(labels map[string]string) client.Object {
		return mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = labels })
	}
	named := func(name string) client.Object {
		return mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Name = name })
	}
	for title, tc := range map[string]struct {
		job  client.Object
		want string
	}{
		"an MPIJob":                   {job: mpiJob(), want: fmt.Sprintf(both, "resnet", "mpijob")},
		"a TrainJob":                  {job: trainJob(), want: fmt.Sprintf(both, "bert", "trainjob")},
		"other labels":                {job: with(map[string]string{"team": "vision"}), want: "[" + name + "," + kind + "]"},
		"no labels, in so many words": {job: with(map[string]string{}), want: fmt.Sprintf(both, "resnet", "mpijob")},
		"one of them":                 {job: with(map[string]string{training.LabelJobType: "mpijob"}), want: "[" + name + "]"},
		"both":                        {job: labelled(mpiJob(), "team", "vision")},
		"wrong ones":                  {job: with(map[string]string{training.LabelJobName: "other", training.LabelJobType: ""})},
		"a name that is no label":     {job: named(strings.Repeat("n", 64)), want: only},
		"no name":                     {job: named(""), want: only},
	} {
		t.Run(title, func(t *testing.T) {
			request := requestFor(t, admissionv1.Update, tc.job, mpiJob())
			wantPatch(t, request, tc.want)
		})
	}
}

// The API server would generate the name after this webhook, which labels the job with
// it.
func TestGeneratedNames(t *testing.T) {
	for base, want := range map[string]string{
		"resnet-":                "^resnet-[a-z0-9]{5}$",
		strings.Repeat("n", 100): "^n{58}[a-z0-9]{5}$",
	} {
		request := requestFor(t, admissionv1.Create, mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Name, mpiJob.GenerateName = "", base }), nil)
		got := ask(t, untouched(t), untouched(t), io.Discard, CreatorPath, request)
		values := map[string]any{}
		var patch []operation
		if err := json.Unmarshal(got.Patch, &patch); err != nil {
			t.Fatal(err)
		}
		for _, operation := range patch {
			values[operation.Path] = operation.Value
		}
		name, _ := values["/metadata/name"].(string)
		labels, _ := values["/metadata/labels"].(map[string]any)
		if !regexp.MustCompile(want).MatchString(name) || labels[training.LabelJobName] != name {
			t.Errorf("of %s: %s", base, got.Patch)
		}
	}
}

func TestCreatorOfANewJob(t *testing.T) {
	const (
		key     = "training.kubeflow.org/created-by"
		path    = "/metadata/annotations/training.kubeflow.org~1created-by"
		first   = `[{"op":"add","path":"/metadata/annotations","value":{"training.kubeflow.org/created-by":"%s"}}]`
		another = `[{"op":"add","path":"` + path + `","value":"%s"}]`
	)
	long := strings.Repeat("ä", 600) // 1200 bytes
	tests := map[string]struct {
		job  client.Object
		user string
		want string
	}{
		"a TrainJob":                           {job: trainJob(), user: "ada", want: fmt.Sprintf(first, "ada")},
		"an MPIJob":                            {job: mpiJob(), user: "ada", want: fmt.Sprintf(first, "ada")},
		"with other annotations":               {job: noted(mpiJob(), "team", "vision"), user: "ada", want: fmt.Sprintf(another, "ada")},
		"that says it is somebody else's":      {job: noted(trainJob(), key, "grace"), user: "ada", want: fmt.Sprintf(another, "ada")},
		"that says the truth":                  {job: noted(trainJob(), key, "ada"), user: "ada"},
		"of a service account":                 {job: trainJob(), user: "system:serviceaccount:team-a:pipeline", want: fmt.Sprintf(first, "system:serviceaccount:team-a:pipeline")},
		"of an address":                        {job: trainJob(), user: "ada+gpu@example.com", want: fmt.Sprintf(first, "ada+gpu@example.com")},
		"of a name that is JSON":               {job: trainJob(), user: `"},{"`, want: fmt.Sprintf(first, `\"},{\"`)},
		"of nobody, who says it is somebody's": {job: noted(trainJob(), key, "grace"), user: "", want: fmt.Sprintf(another, "")},
		"of a name that is too long":           {job: trainJob(), user: long, want: fmt.Sprintf(first, strings.Repeat("ä", 512))},
		"of a name that ends in a character":   {job: trainJob(), user: "a" + long, want: fmt.Sprintf(first, "a"+strings.Repeat("ä", 511))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := requestFor(t, admissionv1.Create, labelled(tc.job), nil)
			request.UserInfo.Username = tc.user
			wantPatch(t, request, tc.want)
		})
	}
}

// Whoever changes a job does not become its creator, and cannot name another.
func TestCreatorStays(t *testing.T) {
	const (
		key  = training.AnnotationCreatedBy
		path = "/metadata/annotations/training.kubeflow.org~1created-by"
	)
	tests := map[string]struct {
		old, changed client.Object
		want         string
	}{
		"a job that stays":                   {old: noted(mpiJob(), key, "grace"), changed: noted(mpiJob(), key, "grace")},
		"another name":                       {old: noted(mpiJob(), key, "grace"), changed: noted(mpiJob(), key, "ada"), want: `[{"op":"add","path":"` + path + `","value":"grace"}]`},
		"no name":                            {old: noted(mpiJob(), key, "grace"), changed: noted(mpiJob(), "a", "b"), want: `[{"op":"add","path":"` + path + `","value":"grace"}]`},
		"no annotations":                     {old: noted(trainJob(), key, "grace"), changed: trainJob(), want: `[{"op":"add","path":"/metadata/annotations","value":{"` + key + `":"grace"}}]`},
		"one that nobody knows":              {old: mpiJob(), changed: mpiJob()},
		"one that nobody knows, and a name":  {old: mpiJob(), changed: noted(mpiJob(), key, "ada"), want: `[{"op":"remove","path":"` + path + `"}]`},
		"one that nobody knows, and no name": {old: mpiJob(), changed: noted(mpiJob(), key, ""), want: `[{"op":"remove","path":"` + path + `"}]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantPatch(t, requestFor(t, admissionv1.Update, labelled(tc.changed), tc.old), tc.want)
		})
	}
}

func TestCreatorOfWhatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		operation   admissionv1.Operation
		object, old string
	}{
		"a new one that is no object":    {operation: admissionv1.Create, object: nonsense},
		"a new one that is not there":    {operation: admissionv1.Create},
		"annotations that are no texts":  {operation: admissionv1.Create, object: `{"metadata":{"annotations":{"a":1}}}`},
		"a changed one that is none":     {operation: admissionv1.Update, object: nonsense, old: `{}`},
		"one that was no object before":  {operation: admissionv1.Update, object: `{}`, old: nonsense},
		"one that was not there, before": {operation: admissionv1.Update, object: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			request := requestFor(t, tc.operation, mpiJob(), nil)
			request.Object.Raw, request.OldObject.Raw = rawText(tc.object), rawText(tc.old)
			wantAnswer(t, ask(t, untouched(t), untouched(t), io.Discard, CreatorPath, request), 400, "read the metadata of a job")
		})
	}
}

func TestCutTextNeverCutsACharacter(t *testing.T) {
	const text = "aäあ😀z"
	for most := range len(text) + 2 {
		got := cutText(text, most)
		if len(got) > most || !strings.HasPrefix(text, got) || !utf8.ValidString(got) {
			t.Errorf("of %d bytes: %q", most, got)
		}
		if len(got) < most-3 && got != text {
			t.Errorf("of %d bytes only %d are left: %q", most, len(got), got)
		}
	}
}

// wantPatch asks, and compares what is to be changed. Nobody is asked for it, and
// no audit line is written: that is done by the webhook that judges.
func wantPatch(t *testing.T, request *admissionv1.AdmissionRequest, want string) {
	t.Helper()
	var audit strings.Builder
	got := ask(t, untouched(t), untouched(t), &audit, CreatorPath, request)
	if !got.Allowed {
		t.Fatalf("refused: %s", inBrief(got))
	}
	if diff := cmp.Diff(want, string(got.Patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if isPatch := got.PatchType != nil && *got.PatchType == admissionv1.PatchTypeJSONPatch; isPatch != (want != "") {
		t.Errorf("the answer is of type %v", got.PatchType)
	}
	if audit.Len() > 0 {
		t.Errorf("an audit line: %s", &audit)
	}
}
