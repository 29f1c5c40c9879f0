// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// simulation is one schedule: a cluster, an operator and those who disturb them.
type simulation struct {
	dice    *rand.Rand
	wish    wish
	profile profile
	scheme  *runtime.Scheme
	server  *server
	clock   *clock
	process *process
	// late are writes of processes that have ended, which are still on their way.
	late []*call
	// cameLate are pods that one of them has made.
	cameLate map[types.UID]bool
	// strays: one of them has made something that is in no cache.
	strays bool
	// nodes that are there; their names are never used again.
	nodes                     []string
	lost, processes           int
	webhookDown, full, faulty bool
	creations                 int
	writes                    int
	// exceeded: the quota lets no more pods in. olderWaits: an older job waits for it.
	exceeded, olderWaits bool
	// addresses counts those that pods were given.
	addresses int
	// flavors counts what a queue has said of where pods go.
	flavors int

	ledger
	trace   []string
	failure string
}

// profile is which faults a schedule has, and how many: those that have all of them
// never get far.
type profile struct {
	steps int
	// Chances of a request, of a command and of a new job.
	refusals, lostAnswers, quota, failures, bornSuspended, bornHeld float64
	// Weights of steps.
	relists, leaders, clocks, webhooks, losses, crashes, pulls, rooms, suspensions, deletions, handDeletions int
	quotas, rivals, holds, cleanups, successions, pace                                                       int
	creations                                                                                                int
	// runtimes is how often the runtime changes.
	runtimes int
}

func newProfile(dice *rand.Rand) profile {
	chance := func(value float64) float64 { return pick(dice, 0, value) }
	weight := func(value int) int { return pick(dice, 0, 0, value) }
	quotas := weight(3)
	return profile{
		steps: 60 + dice.IntN(700), refusals: chance(0.15), lostAnswers: chance(0.1), quota: pick(dice, 0, 0, 0, 0.05), failures: pick(dice, 0, 0.3, 0.8),
		bornSuspended: chance(0.3), bornHeld: pick(dice, 0, 0, 0.5),
		relists: weight(2), leaders: weight(2), clocks: weight(2), webhooks: weight(1), losses: weight(1), crashes: weight(1), pulls: weight(1), rooms: weight(1),
		suspensions: weight(2), deletions: weight(1), handDeletions: weight(1), creations: dice.IntN(3),
		quotas: quotas, rivals: min(quotas, pick(dice, 0, 3)), holds: weight(1), cleanups: weight(2), successions: pick(dice, 6, 6, 1), pace: pick(dice, 4, 4, 1),
	}
}

func newSimulation(seed uint64) *simulation {
	dice := rand.New(rand.NewPCG(seed, 0))
	simulation := &simulation{
		dice: dice, wish: newWish(dice), profile: newProfile(dice), scheme: scheme, clock: &clock{}, nodes: []string{"node-a", "node-b", "node-c"},
		faulty: true, ledger: newLedger(), cameLate: map[types.UID]bool{},
	}
	simulation.server = &server{collections: map[string]*collection{}, wrote: simulation.check}
	// With dice of its own, so that seeds which found something keep their history.
	simulation.profile.runtimes = pick(rand.New(rand.NewPCG(seed, 1)), 0, 0, 2)
	if _, err := simulation.server.create(simulation.wish.runtime(0)); err != nil {
		panic(err)
	}
	simulation.createRival()
	simulation.note("%s", simulation.wish.String())
	simulation.note("%+v", simulation.profile)
	return simulation
}

var scheme = operator.Scheme()

// note writes the history.
func (simulation *simulation) note(format string, arguments ...any) {
	line := fmt.Sprintf(format, arguments...)
	simulation.trace = append(simulation.trace, fmt.Sprintf("%10.3f %s", time.Since(epoch).Seconds(), line))
}

// epoch is when time begins in a bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fail ends the schedule. The first failure is the one that is told.
func (simulation *simulation) fail(format string, arguments ...any) {
	if simulation.failure == "" {
		simulation.failure = fmt.Sprintf(format, arguments...)
		simulation.note("FAILED: %s", simulation.failure)
	}
}

// hash of the history.
func (simulation *simulation) hash() uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(strings.Join(simulation.trace, "\n")))
	return hash.Sum64()
}

func (simulation *simulation) happens(chance float64) bool {
	return chance > 0 && simulation.dice.Float64() < chance
}

// run is the whole of a schedule: faults, then peace, in which everything must come
// to its end, and rest, in which nothing may be written.
func (simulation *simulation) run() {
	defer simulation.shutDown()
	for range simulation.profile.steps {
		if !simulation.take(slices.Concat(simulation.ordinary(), simulation.faults(), simulation.user())) {
			return
		}
	}
	simulation.makePeace()
	if !simulation.settle("after the faults") || !simulation.clearStrays() {
		return
	}
	simulation.checkEnd()
	simulation.rest()
}

// clearStrays: a process that is paused may be woken after another has taken over, and
// write before it notices. What it makes of Secrets and PodGroups, which nobody watches
// or may list, once the other has cleared up, is the next process's to find; it has an
// owner, and goes with the job at the latest.
func (simulation *simulation) clearStrays() bool {
	if !simulation.strays {
		return true
	}
	simulation.endLeader()
	simulation.note("a new leader, for what came late")
	return simulation.settle("after what came late")
}

// take does one of the steps that are possible, and tells whether the schedule goes
// on.
func (simulation *simulation) take(steps []step) bool {
	total := 0
	for _, one := range steps {
		total += one.weight
	}
	at := simulation.dice.IntN(total)
	for _, one := range steps {
		if at -= one.weight; at < 0 {
			simulation.note("%s", one.name)
			one.do()
			break
		}
	}
	synctest.Wait()
	if simulation.process != nil {
		simulation.process.conclude()
	}
	simulation.checkPods()
	return simulation.failure == ""
}

// ordinary are the steps of a day without faults, and time.
func (simulation *simulation) ordinary() []step {
	return append(simulation.work(), simulation.passing()...)
}

// work are the steps that somebody waits for.
func (simulation *simulation) work() (steps []step) {
	for _, request := range simulation.late {
		steps = append(steps, step{"arrives late: " + request.String(), 2, func() { simulation.arrive(request) }})
	}
	process := simulation.process
	if process == nil {
		return append(append(steps, step{"a new leader", simulation.profile.successions, simulation.lead}), simulation.kubernetes()...)
	}
	for _, informer := range process.behind() {
		steps = append(steps, step{"hears of " + informer.kind, 8, informer.hear})
	}
	for _, request := range process.waiting() {
		steps = append(steps, step{"API server: " + request.String(), 8, func() { simulation.answer(request) }})
	}
	if process.queue.isReady() {
		steps = append(steps, step{"looks", 8, process.look})
	}
	return append(steps, simulation.kubernetes()...)
}

func (simulation *simulation) passing() []step {
	var steps []step
	for _, wait := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		steps = append(steps, step{"time passes: " + wait.String(), 1, func() { time.Sleep(wait) }})
	}
	return steps
}

func (simulation *simulation) lead() {
	simulation.processes++
	simulation.strays = false
	simulation.process = newProcess(simulation, simulation.processes)
}

// arrive does what a process had asked for before it ended. Nobody hears the answer.
func (simulation *simulation) arrive(request *call) {
	simulation.late = slices.DeleteFunc(simulation.late, func(one *call) bool { return one == request })
	err := simulation.do(request)
	if err == nil && request.verb == "create" && (request.kind == "Secret" || request.kind == "PodGroup") {
		simulation.strays = true
	}
	if made, found := simulation.server.get(request.kind, client.ObjectKey{Namespace: name.Namespace, Name: request.name}); err == nil && found == nil && request.verb == "create" {
		simulation.cameLate[made.GetUID()] = true
	}
	simulation.note("answer: %v", err)
}

func (simulation *simulation) do(request *call) error {
	simulation.before = request.before
	return request.do()
}

// answer does what the operator asks for, or not, and tells it, or not.
func (simulation *simulation) answer(request *call) {
	process := simulation.process
	if err := simulation.refuse(request); err != nil {
		simulation.note("answer: %v", err)
		process.reply(request, err)
		return
	}
	err := simulation.do(request)
	if request.isWrite() {
		simulation.writes++
	}
	if simulation.faulty && simulation.happens(simulation.profile.lostAnswers) {
		err = apierrors.NewTimeoutError("the answer is lost", 0)
	}
	if err != nil {
		simulation.note("answer: %v", err)
	}
	process.reply(request, err)
}

// refuse is what the API server says where it does not do what it is asked for.
func (simulation *simulation) refuse(request *call) error {
	if request.verb == "create" && request.kind == "JobSet" && simulation.webhookDown {
		return apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "mjobset.kb.io": connection refused`))
	}
	if !simulation.faulty {
		return nil
	}
	if request.verb == "create" && request.kind == "Pod" && (simulation.exceeded || simulation.happens(simulation.profile.quota)) {
		return simulation.refusePod(request)
	}
	if !simulation.happens(simulation.profile.refusals) {
		return nil
	}
	conflict := apierrors.NewConflict(resource(request.kind), request.name, fmt.Errorf("somebody was faster"))
	answers := []error{
		apierrors.NewTooManyRequests("too many", 1), apierrors.NewInternalError(fmt.Errorf("etcd has no leader")), apierrors.NewTimeoutError("not done", 0),
	}
	if request.verb == "status" || request.verb == "update" || request.verb == "patch" {
		answers = append(answers, conflict, conflict)
	}
	return pick(simulation.dice, answers...)
}

// faults are the steps that nobody wants.
func (simulation *simulation) faults() (steps []step) {
	profile := &simulation.profile
	add := func(name string, weight int, do func()) {
		if weight > 0 {
			steps = append(steps, step{"fault: " + name, weight, do})
		}
	}
	if process := simulation.process; process != nil {
		add("the leader ends", profile.leaders, simulation.endLeader)
		for _, informer := range process.behind() {
			add("the watch of "+informer.kind+" breaks", profile.relists, func() { informer.list(len(informer.changes())) })
		}
	}
	add("the clock jumps", profile.clocks, func() {
		simulation.clock.ahead += pick(simulation.dice, -time.Second, -3*time.Second, time.Second, 10*time.Second, 2*time.Minute, 10*time.Minute)
		simulation.note("ahead: %s", simulation.clock.ahead)
	})
	add("the webhook goes or comes", profile.webhooks, func() { simulation.webhookDown = !simulation.webhookDown })
	add("there is no room, or room again", profile.rooms, func() { simulation.full = !simulation.full })
	add("the quota is exceeded, or free again", profile.quotas, func() { simulation.exceeded = !simulation.exceeded })
	add("an older job waits for the quota, or not", profile.rivals, func() { simulation.rivalWaits(!simulation.olderWaits) })
	if workload := simulation.workload(); workload != nil && workload.GetDeletionTimestamp() == nil {
		add("a queue holds the workload back, or lets it go", profile.holds, func() { simulation.queueStep(workload) })
	}
	add("a node is lost", profile.losses, simulation.loseNode)
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		if pod.DeletionTimestamp == nil && hasEnded(pod) {
			weight := profile.cleanups
			if simulation.process == nil {
				weight *= 4
			}
			add("pod "+pod.Name+", which has finished, is deleted", weight, func() { simulation.delete(pod, metav1.DeletePropagationBackground) })
		}
		if pod.DeletionTimestamp != nil || !slices.Contains(simulation.nodes, pod.Spec.NodeName) {
			continue
		}
		if main := mainOf(pod); main == nil {
			add("the image of pod "+pod.Name+" cannot be had", profile.pulls, func() { simulation.missImage(pod) })
		} else if main.State.Running != nil {
			add("pod "+pod.Name+" crashes", profile.crashes, func() { simulation.exit(pod, 137) })
		}
	}
	return steps
}

// missImage has a pod wait for its image, until the kubelet has it after all.
func (simulation *simulation) missImage(pod *corev1.Pod) {
	simulation.bad(pod, "has to wait for its image")
	simulation.changePod(pod, func(next *corev1.Pod) {
		next.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}},
		}}
	})
}

func (simulation *simulation) endLeader() {
	simulation.late = append(simulation.late, simulation.process.end(func(*call) bool { return simulation.happens(0.5) })...)
	simulation.process = nil
}

// loseNode takes a node away for good, and brings another.
func (simulation *simulation) loseNode() {
	simulation.lost++
	at := simulation.dice.IntN(len(simulation.nodes))
	simulation.note("lost: %s", simulation.nodes[at])
	for _, object := range simulation.server.all("Pod") {
		if pod := object.(*corev1.Pod); pod.Spec.NodeName == simulation.nodes[at] && !hasEnded(pod) {
			simulation.bad(pod, "its node is lost")
		}
	}
	simulation.nodes[at] = fmt.Sprintf("node-%d", simulation.lost)
}

// makePeace ends all faults. What they brought about stays.
func (simulation *simulation) makePeace() {
	simulation.note("peace")
	simulation.faulty, simulation.webhookDown, simulation.full, simulation.exceeded = false, false, false, false
	simulation.rivalWaits(false)
	if workload := simulation.workload(); workload != nil && workload.GetDeletionTimestamp() == nil && isHeld(workload) {
		simulation.queueStep(workload)
	}
	if simulation.creations == 0 {
		simulation.create()
	}
}

const (
	// patience is how many steps, and how much time, everything may take to come to
	// its end once faults have ended.
	patience     = 5000
	longPatience = 3 * time.Hour
)

// settle lets everything happen that somebody waits for, until nobody does.
func (simulation *simulation) settle(when string) bool {
	began := time.Now()
	for range patience {
		if steps := simulation.work(); len(steps) > 0 {
			if !simulation.take(steps) {
				return false
			}
			continue
		}
		wait, waits := simulation.nextChange()
		if !waits {
			return true
		}
		if time.Since(began) > longPatience {
			break
		}
		time.Sleep(wait)
	}
	simulation.fail("%s the operator does not come to rest", when)
	return false
}

// nextChange is when time alone brings something about: a job that is due, or a
// launcher that gives up waiting.
func (simulation *simulation) nextChange() (wait time.Duration, waits bool) {
	wait, waits = simulation.process.queue.nextDue()
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		if main := mainOf(pod); main != nil && main.State.Running != nil && simulation.isLauncher(pod) && (!waits || wait > time.Minute) {
			wait, waits = time.Minute, true
		}
	}
	return max(wait, time.Millisecond), waits
}

// rest: neither a look for no reason nor a new leader writes anything.
func (simulation *simulation) rest() {
	simulation.writes = 0
	simulation.note("rest")
	simulation.process.queue.Add(requestFor(name))
	if !simulation.settle("at rest") {
		return
	}
	simulation.endLeader()
	simulation.note("rest, with a new leader")
	if simulation.settle("at rest with a new leader") && simulation.writes > 0 {
		simulation.fail("at rest there are %d writes", simulation.writes)
	}
}

// shutDown lets every goroutine come to its end.
func (simulation *simulation) shutDown() {
	if simulation.process != nil {
		simulation.process.end(func(*call) bool { return false })
	}
	synctest.Wait()
}

// Eventf takes the operator's events.
func (simulation *simulation) Eventf(_ runtime.Object, _ runtime.Object, _, reason, _, note string, arguments ...any) {
	text := fmt.Sprintf(note, arguments...)
	simulation.note("event: %s %s", reason, text)
	simulation.checkKeys("an event", []byte(text))
}

// rootOf is the job that an object belongs to, by its owners when it was made.
func (simulation *simulation) rootOf(object client.Object) types.UID {
	if kindOf(object) == string(simulation.wish.kind) {
		return object.GetUID()
	}
	owner := metav1.GetControllerOf(object)
	switch {
	case owner == nil:
		return ""
	case owner.Kind == string(simulation.wish.kind):
		return owner.UID
	}
	return simulation.roots[owner.UID]
}
