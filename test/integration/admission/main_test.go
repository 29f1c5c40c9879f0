package admission

import (
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
		shared = startCluster(sharedEnd)
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
}

func (lifetime *lifetime) Cleanup(cleanup func()) {
	lifetime.cleanups = append(lifetime.cleanups, cleanup)
}

func (lifetime *lifetime) TempDir() string {
	directory, err := os.MkdirTemp("", "trireme-admission-")
	if err != nil {
		lifetime.Fatal(err)
	}
	lifetime.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(sharedEnd.cleanups) - 1; i >= 0; i-- {
		sharedEnd.cleanups[i]()
	}
	deployed.RemoveProgram()
	os.Exit(code)
}
