// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// namespace returns the namespace in the path, or else in the query.
func (in *input) namespace() string {
	if namespace := in.PathValue("namespace"); namespace != "" {
		return namespace
	}
	return in.query.text("namespace")
}

// job returns the job of a request.
func (in *input) job() jobservice.JobRef {
	return jobservice.JobRef{Kind: in.route.kind, Namespace: in.namespace(), Name: in.PathValue("name")}
}

func (a *API) create(in *input) (any, error) {
	record, dryRun := auth.RecordFrom(in.context()), in.query.text("dryRun") != ""
	if dryRun {
		record.Verb = ""
	}
	content, err := readBody(in.Request)
	if err != nil {
		return nil, err
	}
	object, err := readSubmission(content, in)
	if err != nil {
		return nil, err
	}
	// An invalid name may be any text of any length.
	if checkName("name", object.GetName()) == nil {
		record.Name = object.GetName()
	}
	return a.service.Create(in.context(), in.route.kind, in.namespace(), object, dryRun)
}

// readSubmission decodes the job in a body. For a TrainJob, the body may be only its spec.
func readSubmission(content []byte, in *input) (client.Object, error) {
	name := in.query.text("name")
	var parts map[string]json.RawMessage
	isSpec := in.route.kind.Kind == job.KindTrainJob && name != "" && json.Unmarshal(content, &parts) == nil && parts["spec"] == nil && parts["metadata"] == nil
	if isSpec {
		content = fmt.Appendf(nil, `{"spec":%s}`, content)
	}
	object, err := readJob(content, in.route.kind)
	if err != nil {
		return nil, err
	}
	switch {
	case name != "" && object.GetName() != "" && name != object.GetName():
		return nil, apierror.Invalid("name", "is %q, but metadata.name is %q", name, object.GetName())
	case name != "":
		object.SetName(name)
	}
	return object, nil
}

func (a *API) get(in *input) (any, error) { return a.service.Get(in.context(), in.job()) }

func (a *API) delete(in *input) (any, error) {
	options := jobservice.DeleteOptions{GracePeriodSeconds: in.query.number("gracePeriodSeconds"), DryRun: in.query.text("dryRun") != ""}
	if options.DryRun {
		auth.RecordFrom(in.context()).Verb = ""
	}
	return nil, a.service.Delete(in.context(), in.job(), options)
}

func (a *API) status(in *input) (any, error) {
	object, err := a.service.Get(in.context(), in.job())
	if err != nil {
		return nil, err
	}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		return object.Status, nil
	case *v2beta1.MPIJob:
		return object.Status, nil
	default:
		return nil, fmt.Errorf("%T is not a job", object)
	}
}

func (a *API) restart(in *input) (any, error) { return a.service.Restart(in.context(), in.job()) }

func suspension(suspend bool) func(*API, *input) (any, error) {
	return func(api *API, in *input) (any, error) { return api.service.Suspend(in.context(), in.job(), suspend) }
}

func (a *API) events(in *input) (any, error) {
	events, err := a.service.Events(in.context(), in.job())
	return eventList{events}, err
}

// timeRanges are the time ranges of metrics.
var timeRanges = map[string]time.Duration{"": time.Hour, "1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

func (a *API) metrics(in *input) (any, error) {
	return a.service.Usage(in.context(), in.job(), timeRanges[in.query.text("timeRange")])
}

func (a *API) ranks(in *input) (any, error) { return a.service.Ranks(in.context(), in.job()) }

func (a *API) curves(in *input) (any, error) { return a.service.Curves(in.context(), in.job()) }

func (a *API) diagnose(in *input) (any, error) { return a.service.Diagnose(in.context(), in.job()) }

func (a *API) list(in *input) (any, error) {
	query, err := in.listQuery()
	if err != nil {
		return nil, err
	}
	// MPIJobs are returned as a Kubernetes list, TrainJobs as rows of a table.
	query.Whole = in.route.kind.Kind == job.KindMPIJob
	page, err := a.service.List(in.context(), in.route.kind, query)
	if err != nil {
		return nil, err
	}
	if query.Whole {
		return listOfObjects(in.route.kind, page), nil
	}
	return a.listOfRows(page), nil
}

func (in *input) listQuery() (jobwatch.Query, error) {
	query := jobwatch.Query{
		Namespace: in.namespace(), Status: in.query.text("status"), Runtime: in.query.text("runtime"), Name: in.query.text("search"),
		Sort: in.query.text("sort"), Limit: int(in.query.numberOr("limit", defaultLimit)), Continue: in.query.text("continue"),
	}
	selector, err := labels.Parse(in.query.text("labelSelector"))
	if err != nil {
		return query, apierror.Invalid("labelSelector", "%v", err)
	}
	query.Labels = selector
	return query, in.addFields(&query)
}

// addFields adds a field selector to a query.
func (in *input) addFields(query *jobwatch.Query) error {
	selector, err := fields.ParseSelector(in.query.text("fieldSelector"))
	if err != nil {
		return apierror.Invalid("fieldSelector", "%v", err)
	}
	for _, requirement := range selector.Requirements() {
		if requirement.Operator != "=" && requirement.Operator != "==" {
			return apierror.Invalid("fieldSelector", "%s does not support the operator %s; use =", requirement.Field, requirement.Operator)
		}
		field := map[string]*string{"metadata.name": &query.ExactName, "status.phase": &query.Status}[requirement.Field]
		switch {
		case field == nil:
			return apierror.Invalid("fieldSelector", "field %s is not supported; use metadata.name or status.phase", requirement.Field)
		case field == &query.Status && !slices.Contains(jobview.States, requirement.Value):
			return apierror.Invalid("fieldSelector", "status.phase %q is not one of %s", requirement.Value, strings.Join(jobview.States, ", "))
		case *field != "" && *field != requirement.Value:
			return apierror.Invalid("fieldSelector", "%s cannot be both %q and %q", requirement.Field, *field, requirement.Value)
		}
		*field = requirement.Value
	}
	return nil
}

func listOfObjects(kind *jobview.Kind, page *jobwatch.Page) any {
	list := kubernetesList{
		APIVersion: kind.GVK.GroupVersion().String(), Kind: kind.GVK.Kind + "List", Items: make([]client.Object, 0, len(page.Entries)),
		Metadata: listMeta{ResourceVersion: page.ResourceVersion, Continue: page.Continue},
	}
	for _, entry := range page.Entries {
		list.Items = append(list.Items, entry.Object)
	}
	if page.Remaining > 0 {
		list.Metadata.RemainingItemCount = new(int64(page.Remaining))
	}
	return list
}

func (a *API) listOfRows(page *jobwatch.Page) any {
	list := rowList{Items: make([]row, 0, len(page.Entries)), Continue: page.Continue, Total: page.Total, ResourceVersion: page.ResourceVersion}
	now := a.Clock.Now()
	for _, entry := range page.Entries {
		list.Items = append(list.Items, row{Row: entry.Row, Duration: entry.Row.Duration(now)})
	}
	return list
}

func (a *API) quota(in *input) (any, error) {
	return a.service.Quota(in.context(), in.namespace())
}

func (a *API) cluster(in *input) (any, error) {
	return a.service.Cluster(in.context(), in.namespace(), timeRanges[in.query.text("timeRange")])
}

func (a *API) checkNamespace(in *input) (any, error) {
	return a.service.Preflight(in.context(), nil, in.namespace(), nil)
}

func (a *API) checkJob(in *input) (any, error) {
	content, err := readBody(in.Request)
	if err != nil {
		return nil, err
	}
	var typeMeta struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(content, &typeMeta); err != nil {
		return nil, apierror.Invalid("body", "is not a valid job: %v", err)
	}
	for _, kind := range jobview.Kinds {
		if strings.EqualFold(typeMeta.Kind, string(kind.Kind)) {
			object, err := readJob(content, kind)
			if err != nil {
				return nil, err
			}
			return a.service.Preflight(in.context(), kind, in.namespace(), object)
		}
	}
	return nil, apierror.Invalid("kind", "%q is not a kind of job; use TrainJob or MPIJob", typeMeta.Kind)
}
