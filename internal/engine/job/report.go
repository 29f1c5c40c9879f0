// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// ReportsPort is the default port of the operator's pods that receives reports, and
// ReportsService the default name of its Service.
const (
	ReportsPort    = 9444
	ReportsService = "trireme-reports"
)

// reportAPIs are the API groups in the addresses of reports, by kind. Programs know that of
// Kubeflow Trainer, which has no MPIJobs.
var reportAPIs = map[Kind]string{
	KindTrainJob: "trainer.kubeflow.org/v1alpha1",
	KindMPIJob:   v2beta1.GroupVersion.String(),
	KindJobSet:   jobset.GroupVersion.String(),
}

// ReportAudience is the audience of the tokens with which the job's pods report.
func (j *Job) ReportAudience() string { return ReportAudience(j.Kind, j.Namespace, j.Name) }

// ReportPath is the path that the job's pods report to.
func (j *Job) ReportPath() string { return "/apis/" + j.ReportAudience() }

// ReportAudience is the audience of the tokens with which the pods of a job report.
func ReportAudience(kind Kind, namespace, name string) string {
	return fmt.Sprintf("%s/namespaces/%s/%ss/%s/status", reportAPIs[kind], namespace, kind.Type(), name)
}
