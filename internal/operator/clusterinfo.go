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

// discoveryAge is how old knowledge of the cluster may be.
const discoveryAge = time.Minute

// managedJobs is the first Kubernetes that leaves batch Jobs with managedBy to others
// by default.
var managedJobs = version.MustParseSemantic("1.32.0")

// surroundings is what the operator knows of its cluster. It is asked for when a
// job needs it, and kept for a while.
type clusterInfo struct {
	settings  *config.Config
	reader    client.Reader
	discovery discovery.DiscoveryInterface
	domain    string
	jobSets   atomic.Bool

	mutex sync.Mutex
	asked time.Time
	known discovered
}

// discovered is what the cluster says of itself.
type discovered struct {
	available gang.Available
	method    plan.Method
	// tooOld is the API server's version, if it does not know managedBy of batch Jobs.
	tooOld string
}

// around is what the plan is told, with the words of why.
type environment struct {
	plan.Surroundings
	gangMessage string
}

// withoutGang is enough to delete things.
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

// findClusterDomain is what the names of Services end in.
func findClusterDomain(settings *config.Config) (string, error) {
	if settings.ClusterDomain != "" {
		return settings.ClusterDomain, nil
	}
	content, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", fmt.Errorf("find out what names of Services end in: %w; set clusterDomain", err)
	}
	domain := clusterDomain(string(content))
	if domain == "" {
		return "", fmt.Errorf("find out what names of Services end in: /etc/resolv.conf has no search domain that begins with svc., as pods have it; set clusterDomain")
	}
	return domain, nil
}

// clusterDomain reads what a pod's names are searched in: namespace.svc.DOMAIN,
// svc.DOMAIN, DOMAIN.
func clusterDomain(resolvConf string) string {
	for line := range strings.Lines(resolvConf) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		for _, word := range words[1:] {
			if domain, found := strings.CutPrefix(word, "svc."); found {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}

func (ci *clusterInfo) hasJobSet() bool { return ci.jobSets.Load() }

// of is what the plan of one job is told. An obstacle keeps it from starting.
func (ci *clusterInfo) environmentOf(ctx context.Context, j *job.Job, previous diagnosis.Previous) (environment, *diagnosis.Answer, error) {
	env := environment{Surroundings: plan.Surroundings{
		InitializerImage: ci.settings.Initializer.Image, ClusterDomain: ci.domain, EgressPorts: ci.settings.Network.EgressPorts,
	}}
	known, err := ci.discover(ctx)
	if err != nil {
		return env, nil, err
	}
	if known.tooOld != "" {
		return env, &diagnosis.Answer{Reason: "KubernetesTooOld", Message: fmt.Sprintf(
			"This cluster runs Kubernetes %s. Trireme needs %s or newer, which leaves batch Jobs with managedBy to it. Upgrade the cluster; the job then starts by itself.", known.tooOld, managedJobs)}, nil
	}
	env.Delivery = plan.Delivery{Method: known.method, Image: ci.settings.Agent.Image, PullSecrets: ci.settings.Agent.PullSecrets}
	backend, words, err := gang.Choose(j, known.available)
	if err != nil {
		return env, &diagnosis.Answer{Reason: "NoGangScheduler", Message: err.Error()}, nil
	}
	if j.Kind.Traits().Workload == job.WorkloadJobSet && !ci.hasJobSet() && !previous.Finished() {
		return env, &diagnosis.Answer{Reason: "JobSetNotInstalled", Message: "This cluster does not have the JobSet API (jobset.x-k8s.io), which TrainJobs need. Install its CRD; the job then starts by itself."}, nil
	}
	env.Gang, env.gangMessage = backend, words
	return env, nil, nil
}

// discover asks the cluster which schedulers it has and how the agent gets into
// its pods.
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
