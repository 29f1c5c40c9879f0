package operator

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// One API server and one operator serve all tests of this package that do not
// need their own: each test has its own namespace.
var (
	sharedOnce sync.Once
	shared     *cluster
	sharedEnd  = &lifetime{}
)

func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	sharedOnce.Do(func() {
		sharedEnd.TB = t
		shared = startCluster(sharedEnd, withJobSet)
	})
	if shared == nil {
		t.Fatal("the shared cluster did not start")
	}
	return shared
}

// lifetime makes things live as long as all tests, and not as the one that
// happened to need them first.
type lifetime struct {
	testing.TB
	cleanups []func()
	over     bool
	failed   bool
}

func (lifetime *lifetime) Cleanup(cleanup func()) {
	lifetime.cleanups = append(lifetime.cleanups, cleanup)
}

func (lifetime *lifetime) TempDir() string {
	directory, err := os.MkdirTemp("", "trireme-operator-")
	if err != nil {
		lifetime.Fatal(err)
	}
	lifetime.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// Errorf: when all tests have ended, none of them can fail any more.
func (lifetime *lifetime) Errorf(format string, arguments ...any) {
	if !lifetime.over {
		lifetime.TB.Errorf(format, arguments...)
		return
	}
	lifetime.failed = true
	fmt.Printf(format+"\n", arguments...)
}

func (lifetime *lifetime) end() {
	lifetime.over = true
	for i := len(lifetime.cleanups) - 1; i >= 0; i-- {
		lifetime.cleanups[i]()
	}
}

// waitingTests is how many tests run at a time: they spend their time waiting for
// the operator, and not for a processor.
const waitingTests = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", waitingTests); err != nil {
		panic(err)
	}
	code := m.Run()
	sharedEnd.end()
	if sharedEnd.failed {
		code = 1
	}
	deployed.RemoveProgram()
	os.Exit(code)
}
