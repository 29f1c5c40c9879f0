// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
)

// asSent is a plan as JSON.
func asSent(t testing.TB, plan Plan) []byte {
	t.Helper()
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPlanIsDeterministic(t *testing.T) {
	for name, tc := range plans {
		t.Run(name, func(t *testing.T) {
			want := asSent(t, tc.plan(t))
			for range 10 {
				if got := asSent(t, tc.plan(t)); !bytes.Equal(want, got) {
					t.Fatalf("plans differ (-first +another):\n%s", cmp.Diff(string(want), string(got)))
				}
			}
		})
	}
}

// A client writes the API server's response into the objects of the plan. That must not
// change the job, its pods or the next plan.
func TestInputsAreNotChanged(t *testing.T) {
	for name, tc := range plans {
		t.Run(name, func(t *testing.T) {
			j, state := tc.job(), tc.stateOf()
			env := environment(t, j, tc.has, tc.method)
			plan := Of(j, state, env)
			before := asSent(t, plan)
			for _, object := range slices.Concat(plan.Ensure, podObjects(plan)) {
				clean := object.DeepCopyObject()
				if scribbleOver(reflect.ValueOf(object)); reflect.DeepEqual(clean, object) {
					t.Errorf("changes to %T have no effect, so nothing is tested", object)
				}
			}
			if want := tc.job(); !equality.Semantic.DeepEqual(want, j) {
				t.Errorf("the job (-want +got):\n%s", cmp.Diff(want, j))
			}
			if diff := cmp.Diff(tc.state.Workers, state.Workers); diff != "" {
				t.Errorf("the workers (-want +got):\n%s", diff)
			}
			if after := asSent(t, Of(j, state, env)); !bytes.Equal(before, after) {
				t.Errorf("the next plan (-want +got):\n%s", cmp.Diff(string(before), string(after)))
			}
		})
	}
}

// scribbleOver changes everything that is reachable from a value.
func scribbleOver(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			scribbleOver(value.Elem())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				scribbleOver(value.Field(i))
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			scribbleOver(value.Index(i))
		}
	case reflect.Map:
		for _, key := range value.MapKeys() {
			scribbleOver(value.MapIndex(key))
			value.SetMapIndex(key, reflect.Zero(value.Type().Elem()))
		}
	case reflect.String:
		if value.CanSet() {
			value.SetString("scribbled")
		}
	case reflect.Bool:
		if value.CanSet() {
			value.SetBool(!value.Bool())
		}
	case reflect.Int32, reflect.Int64:
		if value.CanSet() {
			value.SetInt(99)
		}
	}
}
