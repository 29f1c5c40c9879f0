// SPDX-License-Identifier: Apache-2.0

// Package random makes objects for tests. The same seed makes the same object.
package random

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// Fill fills an object with whatever its type allows, sense or not.
func Fill(seed int64, object any) {
	fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(runtime.NewScheme())).Fill(object)
}

// Manifests are the objects of some kinds that the repository has, as a client
// sends them.
func Manifests(t testing.TB, repository string, kinds ...string) [][]byte {
	t.Helper()
	var found [][]byte
	for _, pattern := range []string{"test/manifests/*/*.yaml", "config/samples/*.yaml", "charts/trireme/files/runtimes/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range strings.Split(string(data), "\n---") {
				text, err := yaml.YAMLToJSON([]byte(document))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				var meta metav1.TypeMeta
				if json.Unmarshal(text, &meta) == nil && slices.Contains(kinds, meta.Kind) {
					found = append(found, text)
				}
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no manifest of %v", kinds)
	}
	return found
}

// dice choose.
type dice struct{ *rand.Rand }

func throw(seed int64) dice { return dice{rand.New(rand.NewSource(seed))} }

func (dice dice) chance(percent int) bool { return dice.Intn(100) < percent }

func pick[T any](dice dice, values ...T) T { return values[dice.Intn(len(values))] }

// maybe is a value as often as none.
func maybe[T any](dice dice, value T) *T {
	if dice.chance(50) {
		return nil
	}
	return &value
}

// some are a few of the values, in any order and none twice.
func some[T any](dice dice, most int, values ...T) []T {
	values = slices.Clone(values)
	dice.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values[:dice.Intn(min(most, len(values))+1)]
}

// trap is how often, in percent, something stands where the operator's own would.
const trap = 3

// someAnd are a few of the usual values, and rarely one that is the operator's.
func someAnd[T any](dice dice, most int, usual, traps []T) []T {
	chosen := some(dice, most, usual...)
	if dice.chance(trap) {
		chosen = append(chosen, pick(dice, traps...))
	}
	return chosen
}
