// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
)

// runtimes lists the runtimes of the cluster and, if the path has a namespace, those of
// the namespace.
func (a *API) runtimes(in *input) (any, error) {
	runtimes, err := a.service.Runtimes(in.context(), jobservice.RuntimeQuery{Namespace: in.namespace(), Framework: in.query.text("framework")})
	return runtimeList{runtimes}, err
}

func (a *API) ownRuntimes(in *input) (any, error) {
	runtimes, err := a.service.Runtimes(in.context(), jobservice.RuntimeQuery{Namespace: in.namespace(), OnlyOwn: true, Framework: in.query.text("framework")})
	return runtimeList{runtimes}, err
}

func (a *API) runtime(in *input) (any, error) {
	runtime, err := a.service.Runtime(in.context(), in.namespace(), in.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return runtime.Object, nil
}

func (a *API) createRuntime(in *input) (any, error) {
	submitted, dryRun, err := in.runtime()
	if err != nil {
		return nil, err
	}
	if checkName("name", submitted.Object.GetName()) == nil {
		auth.RecordFrom(in.context()).Name = submitted.Object.GetName()
	}
	created, err := a.service.CreateRuntime(in.context(), submitted, dryRun)
	if err != nil {
		return nil, err
	}
	return created.Object, nil
}

func (a *API) updateRuntime(in *input) (any, error) {
	submitted, dryRun, err := in.runtime()
	if err != nil {
		return nil, err
	}
	if name := in.PathValue("name"); submitted.Object.GetName() == "" {
		submitted.Object.SetName(name)
	} else if submitted.Object.GetName() != name {
		return nil, apierror.Invalid("metadata.name", "is %q, but the path has %q", submitted.Object.GetName(), name)
	}
	updated, err := a.service.UpdateRuntime(in.context(), submitted, dryRun)
	if err != nil {
		return nil, err
	}
	return updated.Object, nil
}

// runtime reads the runtime in a body. A dry run is not in the audit log.
func (in *input) runtime() (submitted jobservice.SubmittedRuntime, dryRun bool, err error) {
	dryRun = in.query.text("dryRun") != ""
	if dryRun {
		auth.RecordFrom(in.context()).Verb = ""
	}
	content, err := readBody(in.Request)
	if err != nil {
		return submitted, dryRun, err
	}
	submitted.Namespace = in.namespace()
	submitted.Object, err = readRuntime(content, in.route.response.(runtimeBody).kind)
	return submitted, dryRun, err
}

// readRuntime decodes a runtime. As for jobs, unknown fields are an error.
func readRuntime(content []byte, kind string) (client.Object, error) {
	object := client.Object(&v2alpha1.TrainingRuntime{})
	if kind == string(v2alpha1.RuntimeKindCluster) {
		object = &v2alpha1.ClusterTrainingRuntime{}
	}
	err := job.CheckQuantities(content)
	var unknown []error
	if err == nil {
		unknown, err = kjson.UnmarshalStrict(content, object)
	}
	if err != nil {
		return nil, apierror.Invalid("body", "is not a valid %s: %v", kind, err)
	}
	if len(unknown) > 0 {
		return nil, unknownFields(kind, fmt.Sprintf("See the fields: kubectl explain %s.spec --recursive", kind), unknown)
	}
	return object, checkType(object, kind, v2alpha1.GroupVersion)
}

// validateRuntime checks a runtime of either scope without the cluster. What is wrong with a
// document is its answer; only a body that is no document at all is refused.
func (a *API) validateRuntime(in *input) (any, error) {
	content, err := readBody(in.Request)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(content, &fields) != nil || fields == nil {
		return nil, apierror.Invalid("body", "is not a JSON object")
	}
	return runtimecheck.Document(content), nil
}

func (a *API) testRuntime(in *input) (any, error) {
	content, err := readBody(in.Request)
	if err != nil {
		return nil, err
	}
	var test jobservice.RuntimeTest
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&test); err != nil {
		return nil, apierror.Invalid("body", "is not a valid test of a runtime: %v", err)
	}
	if test.Runtime == "" {
		return nil, apierror.Invalid("runtime", "is required")
	}
	if err := checkName("runtime", test.Runtime); err != nil {
		return nil, err
	}
	return a.service.TestRuntime(in.context(), in.namespace(), test)
}

func (a *API) runtimeTestReport(in *input) (any, error) {
	return a.service.RuntimeTestReport(in.context(), in.namespace(), in.PathValue("name"))
}
