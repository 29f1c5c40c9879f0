// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

var (
	quotaFault   = field.Forbidden(field.NewPath("spec"), "too large").WithOrigin(string(quota.CauseExceeded))
	otherFault   = field.Invalid(field.NewPath("spec", "a"), 1, "wrong")
	quotaRefusal = (&validation.Findings{Errors: field.ErrorList{quotaFault}}).Invalid(schema.GroupKind{Kind: "MPIJob"}, "job")
	bothRefusal  = (&validation.Findings{Errors: field.ErrorList{quotaFault, otherFault}}).Invalid(schema.GroupKind{Kind: "MPIJob"}, "job")
	taken        = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "mpijobs"}, "job")
	mayNot       = apierrors.NewForbidden(schema.GroupResource{Resource: "mpijobs"}, "job", errors.New("no"))
)

// byAdmission is a refusal by this cluster's own admission.
func byAdmission(name string) error {
	refusal := apierrors.NewInvalid(schema.GroupKind{Kind: "MPIJob"}, "job", field.ErrorList{field.Invalid(field.NewPath(name), 1, "wrong")})
	refusal.ErrStatus.Message = `admission webhook "jobs" denied the request: ` + refusal.ErrStatus.Message
	return refusal
}

func refused(err error) func(*Facts) {
	return func(facts *Facts) { facts.Submission.Refusal = err }
}

func TestRules(t *testing.T) {
	found := func(facts *Facts) {
		facts.Submission.Rules.Value = &validation.Findings{
			Errors: field.ErrorList{field.Invalid(field.NewPath("spec", "slots"), 99, "too many")}, Warnings: []validation.Warning{{Field: "spec.trainer", Message: "odd"}},
		}
	}
	table(t, rules, submitted, map[string]tableCase{
		"nothing": {},
		"faults of a job that the cluster refuses": {change: all(found, refused(bothRefusal)), want: []string{"certain: spec.slots", "note: spec.trainer"}, fix: "Correct spec.slots"},
		"faults that admission shares":             {change: all(found, refused(byAdmission("spec.slots"))), want: []string{"certain: spec.slots", "note: spec.trainer"}},
		"faults that admission does not share":     {change: all(found, refused(byAdmission("spec.other"))), want: []string{"note: spec.trainer"}},
		"faults of one that the cluster takes":     {change: found, want: []string{"note: spec.trainer"}},
		"faults without a cluster's word":          {change: all(found, func(facts *Facts) { facts.Submission.DryRun = false }), want: []string{"certain: spec.slots", "note: spec.trainer"}},
		"faults of one whose name is taken":        {change: all(found, refused(taken)), want: []string{"note: spec.trainer"}},
		"a warning about a key with a colon": {change: func(facts *Facts) {
			facts.Submission.Rules.Value = &validation.Findings{Warnings: []validation.Warning{{Field: "metadata.annotations[a: b]", Message: "odd"}}}
		}, want: []string{"note: metadata.annotations[a: b]"}},
		"not known": {change: func(facts *Facts) { facts.Submission.Rules.Unknown = "may not" }, want: []string{"not known: Rules"}},
	})
}

func TestDryRun(t *testing.T) {
	table(t, dryRun, submitted, map[string]tableCase{
		"a job that is taken":        {},
		"a job that is refused":      {change: refused(bothRefusal), want: []string{"certain: The API server refuses the job"}, fix: "in the file"},
		"a quota":                    {change: refused(quotaRefusal), want: []string{"certain: The API server refuses the job"}, fix: "kubectl describe resourcequota"},
		"somebody who may not":       {change: refused(mayNot), want: []string{"not known: The dry run was not possible"}},
		"a name that is taken":       {change: refused(taken), want: []string{"certain: The name is already in use"}, fix: "delete job -n team"},
		"an API server that is down": {change: refused(errors.New("no answer")), want: []string{"certain: The API server refuses the job"}},
		"not asked":                  {change: all(refused(bothRefusal), func(facts *Facts) { facts.Submission.DryRun = false })},
	})
	if got, want := causeText(bothRefusal), "spec: Forbidden: too large; spec.a: Invalid value: 1: wrong"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPermissions(t *testing.T) {
	may := func(permissions ...Permission) func(*Facts) {
		return func(facts *Facts) { facts.Submission.Permissions.Value = permissions }
	}
	table(t, permissions, submitted, map[string]tableCase{
		"everything":             {change: may(Permission{Action: "create mpijobs", CreatesJobs: true, Allowed: true, Needed: true}, Permission{Action: "list pods", Allowed: true})},
		"no jobs":                {change: may(Permission{Action: "create mpijobs", CreatesJobs: true, Needed: true}), want: []string{"certain: You may not create mpijobs"}, fix: "kubectl create rolebinding"},
		"no pods":                {change: may(Permission{Action: "list pods"}), want: []string{"possible: You may not list pods"}},
		"no job of either kind":  {change: may(Permission{Action: "create mpijobs", CreatesJobs: true}, Permission{Action: "create trainjobs", CreatesJobs: true}), want: []string{"certain: You may not create mpijobs", "certain: You may not create trainjobs"}},
		"nobody could be asked":  {change: func(facts *Facts) { facts.Submission.Permissions.Unknown = "cannot ask" }, want: []string{"not known: Permissions"}},
		"a namespace for a kind": {change: may(Permission{Action: "create mpijobs", CreatesJobs: true}, Permission{Action: "create trainjobs", CreatesJobs: true, Allowed: true}), want: []string{"possible: You may not create mpijobs"}},
	})
}

func TestRuntimeExists(t *testing.T) {
	table(t, runtimeExists, submitted, map[string]tableCase{
		"it does":             {},
		"it does not":         {change: func(facts *Facts) { facts.Job, facts.RuntimeMissing, facts.RuntimeRef = nil, true, "TrainingRuntime a" }, want: []string{"certain: TrainingRuntime a is missing"}, fix: "odh runtime list -n team"},
		"it may not be read":  {change: func(facts *Facts) { facts.Job, facts.NoModel = nil, "may not get TrainingRuntime a" }, want: []string{"not known: Runtime"}},
		"a namespace, no job": {change: func(facts *Facts) { facts.Job, facts.Name = nil, "" }},
	})
}

func TestNamespaceExists(t *testing.T) {
	table(t, namespaceExists, submitted, map[string]tableCase{
		"it does":            {},
		"it does not":        {change: func(facts *Facts) { facts.NamespaceObject.Value = nil }, want: []string{"certain: Namespace team is missing"}, fix: "kubectl create namespace team"},
		"it may not be read": {change: func(facts *Facts) { facts.NamespaceObject = Known[*corev1.Namespace]{Unknown: "may not"} }, want: []string{"not known: Namespace team"}},
	})
}

func TestImageReachable(t *testing.T) {
	images := func(launcher, worker string, policy corev1.PullPolicy) func(*Facts) {
		return func(facts *Facts) {
			for _, each := range []struct {
				container *corev1.Container
				image     string
			}{{&facts.Job.Launcher.Template.Spec.Containers[0], launcher}, {&facts.Job.Worker.Template.Spec.Containers[0], worker}} {
				each.container.Image, each.container.ImagePullPolicy = each.image, policy
			}
		}
	}
	table(t, imageReachable, submitted, map[string]tableCase{
		"an image on a node":            {},
		"one of Docker's, in short":     {change: all(images("busybox", "busybox", ""), inCluster(node("a", func(node *corev1.Node) { node.Status.Images[0].Names = []string{"docker.io/library/busybox:latest"} })))},
		"an image on no node":           {change: images("x.example/a:1", "x.example/a:1", ""), want: []string{"not known: Image x.example/a:1"}},
		"two images":                    {change: images("x.example/a:1", "x.example/b:1", ""), want: []string{"not known: Image x.example/a:1", "not known: Image x.example/b:1"}},
		"one that nobody fetches":       {change: images("x.example/a:1", "x.example/a:1", corev1.PullNever), want: []string{"likely: Image x.example/a:1 is on no node"}, fix: "IfNotPresent"},
		"no name of an image":           {change: images("A B", "A B", ""), want: []string{"certain: Image A B is invalid"}, fix: "Correct the image name"},
		"nodes that may not be listed":  {change: func(facts *Facts) { facts.Nodes = Known[[]corev1.Node]{Unknown: "may not list nodes"} }, want: []string{"not known: Image registry.example/train:1"}},
		"a login that is missing":       {change: pullSecret("login", Known[bool]{}), want: []string{"possible: imagePullSecret login is missing"}},
		"a job without a known runtime": {change: func(facts *Facts) { facts.Job = nil }},
	})
}

func TestSlots(t *testing.T) {
	slotted := func(number int32) func(*Facts) { return func(facts *Facts) { facts.Job.Slots = number } }
	table(t, slots, submitted, map[string]tableCase{
		"no GPU":              {change: slotted(4)},
		"a GPU each":          {change: all(slotted(2), workersAsk("nvidia.com/gpu", "2"))},
		"more GPUs":           {change: all(slotted(1), workersAsk("nvidia.com/gpu", "2"))},
		"more slots":          {change: all(slotted(4), workersAsk("nvidia.com/gpu", "2")), want: []string{"possible: More slots than GPUs"}, fix: "Set slotsPerWorker to 2"},
		"a job nobody knows":  {change: func(facts *Facts) { facts.Job = nil }},
		"GPUs of two vendors": {change: all(slotted(2), workersAsk("nvidia.com/gpu", "1", "amd.com/gpu", "1"))},
	})
}

func TestPreflightReport(t *testing.T) {
	small := limited(amounts("pods", "1"), nil)
	for name, test := range map[string]struct {
		change                       func(*Facts)
		passed, failed, warned, dark int
		quotaAlone                   bool
	}{
		"all is well":          {change: func(*Facts) {}, passed: 16},
		"a quota":              {change: all(small, refused(quotaRefusal)), passed: 14, failed: 2, quotaAlone: true},
		"a quota and more":     {change: all(small, refused(bothRefusal)), passed: 14, failed: 2},
		"a quota and no nodes": {change: all(small, inCluster()), passed: 13, failed: 2, dark: 1},
		"a warning":            {change: labelled("istio-injection", "enabled"), passed: 16, warned: 1},
		"nobody may look":      {change: func(facts *Facts) { facts.Policies.Unknown = "may not" }, passed: 15, dark: 1},
		"a job that is forbidden": {change: func(facts *Facts) {
			facts.Submission.Permissions.Value = []Permission{{Action: "create", Needed: true}}
		}, passed: 15, failed: 1},
	} {
		for kind, model := range kinds() {
			report := Preflight(submitted(model, test.change))
			if report.Total != 16 || report.Passed != test.passed || report.Number(Fail) != test.failed || report.Number(Warning) != test.warned || report.Number(Unknown) != test.dark || report.QuotaAlone() != test.quotaAlone {
				t.Errorf("%s, %s: %+v", name, kind, report)
			}
		}
	}
}

// What is not known is worse than a warning, and better than a failure.
func TestResultOf(t *testing.T) {
	for _, test := range []struct {
		ranks []Rank
		want  Result
	}{
		{nil, OK}, {[]Rank{Note}, Warning}, {[]Rank{Possible}, Warning}, {[]Rank{Note, NotKnown}, Unknown}, {[]Rank{NotKnown, Likely}, Fail}, {[]Rank{Certain}, Fail},
	} {
		var findings []Finding
		for _, rank := range test.ranks {
			findings = append(findings, Finding{Rank: rank})
		}
		if got := resultOf(findings); got != test.want {
			t.Errorf("%v: %s", test.ranks, got)
		}
	}
}
