package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// description prints a job for people, section by section.
type description struct {
	to       io.Writer
	terminal terminal
	now      time.Time
	calledAs string
}

func (description *description) print(seen *view, around *surroundings) {
	description.head(seen, around)
	description.failure(seen)
	description.section("Timeline")
	if len(seen.Timeline) == 0 {
		description.line(2, "Waiting for the operator to process the job")
	}
	printTimeline(description.to, seen, "  ")
	description.pods(seen, around)
	description.resources(around)
	description.events(around)
}

func (description *description) section(title string) {
	fmt.Fprintf(description.to, "\n%s\n", description.terminal.paint(bold, title+":"))
}

// line prints a text with an indent, wrapped to the terminal.
func (description *description) line(indent int, text string) {
	for _, line := range description.terminal.wrap(text, indent) {
		fmt.Fprintf(description.to, "%s%s\n", strings.Repeat(" ", indent), line)
	}
}

// field prints a name and its value; a long value is wrapped under itself.
func (description *description) field(name, value string) {
	const indent = 11
	if value == "" {
		return
	}
	if name != "" {
		name += ":"
	}
	for _, line := range description.terminal.wrap(value, indent) {
		fmt.Fprintf(description.to, "%-*s%s\n", indent, name, line)
		name = ""
	}
}

func (description *description) head(seen *view, around *surroundings) {
	fmt.Fprintf(description.to, "%s %s in namespace %s\n", seen.Kind.Kind, description.terminal.paint(bold, seen.GetName()), seen.GetNamespace())
	fmt.Fprintf(description.to, "%-11s%s\n", "State:", description.state(seen))
	if !seen.Finished() && seen.Phase != training.PhaseRunning {
		description.field("", seen.Explanation())
	}
	created := age(description.now, seen.GetCreationTimestamp().Time) + " ago"
	if by := seen.GetAnnotations()[training.AnnotationCreatedBy]; by != "" {
		created += " by " + by
	}
	description.field("Created", created)
	if trainJob, ok := seen.Object.(*v2alpha1.TrainJob); ok {
		description.field("Runtime", runtimeOf(trainJob))
	}
	if made := around.made; made != nil {
		description.field("MPI", fmt.Sprintf("%s, %s, %s", made.MPI, count(made.Worker.Replicas, "worker"), count(made.WorldSize(), "rank")))
		if containers := made.Worker.Template.Spec.Containers; len(containers) > 0 {
			description.field("Image", containers[0].Image)
		}
	}
	description.field("Restarts", restarts(seen, around.made))
	description.field("Queue", seen.GetLabels()[training.LabelQueue])
}

// runtimeOf returns the runtime of a job and, once the operator has stored it, the start
// of its digest: jobs with the same digest run with the same runtime.
func runtimeOf(trainJob *v2alpha1.TrainJob) string {
	text := fmt.Sprintf("%s %s", trainJob.Spec.RuntimeRef.Kind, trainJob.Spec.RuntimeRef.Name)
	if digest := trainJob.Status.RuntimeDigest; digest != "" {
		text += fmt.Sprintf(" (sha256:%.12s)", job.ShortDigest(digest))
	}
	return text
}

// restarts returns how often a job was restarted and why, or "" if it never was.
func restarts(seen *view, made *job.Job) string {
	restart := seen.Restart
	if restart == nil {
		return ""
	}
	text := fmt.Sprint(restart.Count)
	if made != nil {
		text += fmt.Sprintf(" of %d", made.Lifetime.BackoffLimit)
	}
	text += fmt.Sprintf(", last failure: %s", restart.Reason)
	if restart.Message != "" {
		text += ": " + strings.TrimSuffix(restart.Message, ".")
	}
	if seen.IsRestarting() {
		text += ", due " + restart.DueTime.UTC().Format(time.RFC3339)
	}
	return text
}

// state returns the state of a job with its run time and ready workers.
func (description *description) state(seen *view) string {
	state := seen.State()
	text := description.terminal.paint(stateColour(state), state)
	ran, known := seen.Ran(description.now)
	switch {
	case known && seen.Finished():
		text += " after " + ran.Round(time.Second).String()
	case known && seen.Phase == training.PhaseRunning:
		text += " for " + ran.Round(time.Second).String()
	}
	if workers := seen.Workers(); workers != "-" && !seen.Finished() {
		text += fmt.Sprintf(", %s workers ready", workers)
	}
	return text
}

func count(number int32, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

func (description *description) failure(seen *view) {
	if seen.Phase != training.PhaseFailed {
		return
	}
	description.section("Failure")
	description.line(2, description.terminal.paint(red, string(seen.FailureReason)))
	description.line(2, seen.FailureMessage)
	if process := seen.FailedProcess; process != nil {
		if named := processName(process); named != "" {
			description.line(2, "Process: "+named)
		}
		if len(process.LastLines) > 0 {
			description.line(2, "Last lines of output:")
		}
		for _, line := range process.LastLines {
			description.line(4, line)
		}
	}
	description.line(2, fmt.Sprintf("More: %s diagnose %s -n %s", description.calledAs, seen.Named(), seen.GetNamespace()))
}

// processName returns which process failed and how, as far as that is known.
func processName(process *training.FailedProcess) string {
	var parts []string
	if process.Rank != nil {
		parts = append(parts, fmt.Sprintf("rank %d", *process.Rank))
	}
	if process.Host != "" {
		parts = append(parts, "host "+process.Host)
	}
	if process.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *process.ExitCode))
	}
	if process.Signal != nil {
		parts = append(parts, fmt.Sprintf("signal %d", *process.Signal))
	}
	return strings.Join(parts, ", ")
}

// leaf is a pod in the tree.
type leaf struct {
	label, name, node, phase, reason string
	restarts                         int32
}

// pods shows launcher and workers as a tree.
func (description *description) pods(seen *view, around *surroundings) {
	description.section("Pods")
	restarts := map[string]int32{}
	for i := range around.pods {
		for _, container := range around.pods[i].Status.ContainerStatuses {
			restarts[around.pods[i].Name] += container.RestartCount
		}
	}
	leafOf := func(label string, pod *training.PodStatus) leaf {
		phase := pod.Phase
		// The status keeps the last known phase of pods that were deleted after the job finished.
		if seen.Finished() && phase == string(corev1.PodRunning) && !around.noPods && !around.has(pod.Name) {
			phase = "Removed"
		}
		return leaf{label: label, name: pod.Name, node: pod.Node, phase: phase, reason: pod.Reason, restarts: restarts[pod.Name]}
	}
	var leaves []leaf
	for i := range around.pods {
		if pod := &around.pods[i]; pod.Labels[training.LabelReplicaType] == training.RoleInitializer {
			leaves = append(leaves, leaf{label: training.RoleInitializer, name: pod.Name, node: pod.Spec.NodeName, phase: string(pod.Status.Phase), restarts: restarts[pod.Name]})
		}
	}
	if seen.LauncherPodStatus != nil {
		leaves = append(leaves, leafOf(training.RoleLauncher, seen.LauncherPodStatus))
	}
	for i := range seen.WorkerPodStatuses {
		worker := &seen.WorkerPodStatuses[i]
		leaves = append(leaves, leafOf(fmt.Sprintf("worker %d", worker.Index), &worker.PodStatus))
	}
	if len(leaves) == 0 {
		description.line(2, "None")
		return
	}
	description.tree(seen.GetName(), leaves)
}

func (description *description) tree(root string, leaves []leaf) {
	fmt.Fprintf(description.to, "  %s\n", root)
	table := tabwriter.NewWriter(description.to, 0, 8, 2, ' ', 0)
	for i, pod := range leaves {
		branch := "├─"
		if i == len(leaves)-1 {
			branch = "└─"
		}
		cells := []string{"  " + branch + " " + pod.label, orElse(pod.phase, "Pending"), orDash(pod.node), count(pod.restarts, "restart"), pod.name}
		if pod.reason != "" {
			cells = append(cells, pod.reason)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush()
}

// resources shows what the job requests, and what is allocated to its pods on nodes.
func (description *description) resources(around *surroundings) {
	if around.made == nil {
		return
	}
	asked, granted := askedBy(around.made), corev1.ResourceList{}
	for i := range around.pods {
		pod := &around.pods[i]
		if ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; pod.Spec.NodeName != "" && !ended {
			add(granted, job.Requests(&pod.Spec), 1)
		}
	}
	description.section("Resources")
	table := tabwriter.NewWriter(description.to, 0, 8, 3, ' ', 0)
	fmt.Fprintf(table, "  \trequested\tallocated\n")
	names := slices.SortedFunc(maps.Keys(asked), func(one, other corev1.ResourceName) int { return strings.Compare(string(one), string(other)) })
	for _, name := range names {
		amount, has := asked[name], granted[name]
		held := has.String()
		if around.noPods {
			held = "?"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", name, amount.String(), held)
	}
	_ = table.Flush()
}

// add adds a list to a sum, as often as times says.
func add(sum, list corev1.ResourceList, times int32) {
	for name, quantity := range list {
		total := sum[name]
		for range times {
			total.Add(quantity)
		}
		sum[name] = total
	}
}

// shownEvents is the maximum number of events that are shown, the newest ones.
const shownEvents = 20

func (description *description) events(around *surroundings) {
	description.section("Events")
	events := around.events
	if around.noEvents {
		description.line(2, "Unknown")
		return
	}
	if len(events) == 0 {
		description.line(2, "None (Kubernetes keeps events for one hour)")
		return
	}
	if left := len(events) - shownEvents; left > 0 {
		events = events[left:]
		description.line(2, fmt.Sprintf("(%d older events are not shown)", left))
	}
	for i := range events {
		event := &events[i]
		reason := event.Reason
		if event.Type == corev1.EventTypeWarning {
			reason = description.terminal.paint(yellow, event.Reason)
		}
		times := ""
		if number := repeated(event); number > 1 {
			times = fmt.Sprintf(" (%d times)", number)
		}
		fmt.Fprintf(description.to, "  %-5s %s  %s/%s%s\n", age(description.now, jobview.Happened(event)), reason, strings.ToLower(event.InvolvedObject.Kind), event.InvolvedObject.Name, times)
		description.line(8, strings.TrimSpace(event.Message))
	}
}

func repeated(event *corev1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	return event.Count
}
