// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// discoveryAge is how long facts about the cluster are cached.
const discoveryAge = time.Minute

// managedJobs is the first Kubernetes version that supports managedBy of batch Jobs by
// default.
var managedJobs = version.MustParseSemantic("1.32.0")

// clusterInfo holds facts about the cluster. They are read when a job needs them, and
// cached for discoveryAge.
type clusterInfo struct {
	settings  *config.Config
	reader    client.Reader
	discovery discovery.DiscoveryInterface
	domain    string
	// reports is where jobs report their progress; nil if they cannot.
	reports *reportPort
	jobSets atomic.Bool

	mutex sync.Mutex
	asked time.Time
	known discovered
}

// discovered holds the facts that the API server and the nodes report.
type discovered struct {
	available gang.Available
	method    plan.Method
	// tooOld is the API server's version if it does not support managedBy of batch Jobs.
	tooOld string
}

// environment is what the plan of a job depends on besides the job itself.
type environment struct {
	plan.Environment
	// gangMessage says why the gang scheduler was chosen.
	gangMessage string
}

// forDeletion returns an environment without a gang scheduler, which is enough to delete
// objects.
func (env environment) forDeletion() environment {
	env.Gang, _, _ = gang.Choose(&job.Job{}, gang.Available{})
	return env
}

func newClusterInfo(settings *config.Config, reader client.Reader, discovery discovery.DiscoveryInterface) (*clusterInfo, error) {
	domain, err := findClusterDomain(settings)
	if err != nil {
		return nil, err
	}
	return &clusterInfo{settings: settings, reader: reader, discovery: discovery, domain: domain}, nil
}

// findClusterDomain returns the DNS domain of the cluster, such as cluster.local.
func findClusterDomain(settings *config.Config) (string, error) {
	if settings.ClusterDomain != "" {
		return settings.ClusterDomain, nil
	}
	content, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", fmt.Errorf("find the cluster domain: %w; set clusterDomain in the operator's configuration", err)
	}
	domain := clusterDomain(string(content))
	if domain == "" {
		return "", fmt.Errorf("find the cluster domain: /etc/resolv.conf has no search domain that begins with svc., as it has in pods; set clusterDomain in the operator's configuration")
	}
	return domain, nil
}

// clusterDomain reads the domain from the search domains of a pod: NAMESPACE.svc.DOMAIN,
// svc.DOMAIN, DOMAIN.
func clusterDomain(resolvConf string) string {
	for line := range strings.Lines(resolvConf) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, search := range fields[1:] {
			if domain, found := strings.CutPrefix(search, "svc."); found {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}

func (ci *clusterInfo) hasJobSet() bool { return ci.jobSets.Load() }

// environmentOf returns the environment of a job, or the obstacle that keeps the job from
// starting.
func (ci *clusterInfo) environmentOf(ctx context.Context, j *job.Job, previous diagnosis.Previous) (environment, *diagnosis.Condition, error) {
	env := environment{Environment: plan.Environment{
		InitializerImage: ci.settings.Initializer.Image, ClusterDomain: ci.domain, EgressPorts: ci.settings.Network.EgressPorts, Reports: ci.reports.environment(),
	}}
	known, err := ci.discover(ctx)
	if err != nil {
		return env, nil, err
	}
	if known.tooOld != "" {
		return env, &diagnosis.Condition{Reason: "KubernetesTooOld", Message: fmt.Sprintf(
			"This cluster runs Kubernetes %s. Trireme needs %s or newer, which supports managedBy of batch Jobs. Upgrade the cluster; the job then starts automatically.", known.tooOld, managedJobs)}, nil
	}
	env.Delivery = plan.Delivery{Method: known.method, Image: ci.settings.Agent.Image, PullSecrets: ci.settings.Agent.PullSecrets}
	backend, message, err := gang.Choose(j, known.available)
	if err != nil {
		return env, &diagnosis.Condition{Reason: "NoGangScheduler", Message: err.Error()}, nil
	}
	if j.Kind.Traits().Workload == job.WorkloadJobSet && !ci.hasJobSet() && !previous.Finished() {
		return env, &diagnosis.Condition{Reason: "JobSetNotInstalled", Message: "This cluster does not have the JobSet API (jobset.x-k8s.io), which TrainJobs need. Install its CRD; the job then starts automatically."}, nil
	}
	env.Gang, env.gangMessage = backend, message
	return env, nil, nil
}

// discover finds out which gang schedulers the cluster has, and how pods can get the
// agent.
func (ci *clusterInfo) discover(ctx context.Context) (discovered, error) {
	ci.mutex.Lock()
	defer ci.mutex.Unlock()
	if time.Since(ci.asked) < discoveryAge {
		return ci.known, nil
	}
	var found discovered
	var err error
	if found.available, err = gang.Discover(ci.discovery); err != nil {
		return found, err
	}
	found.available.CoschedulerName = ci.settings.Gang.CoschedulerName
	server, err := ci.discovery.ServerVersion()
	if err != nil {
		return found, fmt.Errorf("ask the API server for its version: %w", err)
	}
	found.method = plan.Method(ci.settings.Agent.Delivery)
	if ci.settings.Agent.Delivery == config.DeliveryAuto {
		if found.method, err = ci.bestMethod(ctx, server.GitVersion); err != nil {
			return found, err
		}
	}
	if parsed, err := version.ParseGeneric(server.GitVersion); err == nil && parsed.LessThan(managedJobs) {
		found.tooOld = server.GitVersion
	}
	ci.known, ci.asked = found, time.Now()
	return found, nil
}

func (ci *clusterInfo) bestMethod(ctx context.Context, server string) (plan.Method, error) {
	var nodes corev1.NodeList
	if err := ci.reader.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	return plan.BestMethod(server, nodes.Items), nil
}
