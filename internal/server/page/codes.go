// SPDX-License-Identifier: Apache-2.0

package page

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// CodeValidity is how long the browser has to open the page.
const CodeValidity = 2 * time.Minute

// Codes exchanges a code for a token, once. The code is in an address that the command
// line gives to a browser; the token never is.
type Codes struct {
	token string
	clock clock.PassiveClock

	mutex   sync.Mutex
	code    string
	expires time.Time
}

// NewCodes returns the codes for a token.
func NewCodes(token string, clock clock.PassiveClock) *Codes {
	return &Codes{token: token, clock: clock}
}

// New returns a new code; older codes are no longer valid.
func (c *Codes) New() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.code, c.expires = rand.Text(), c.clock.Now().Add(CodeValidity)
	return c.code
}

// take tells whether a code is valid. It is not valid again.
func (c *Codes) take(code string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	valid := c.code != "" && c.clock.Now().Before(c.expires) && subtle.ConstantTimeCompare([]byte(code), []byte(c.code)) == 1
	if valid {
		c.code = ""
	}
	return valid
}

// exchange responds with the token.
func (c *Codes) exchange(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Cache-Control", "no-store")
	writer.Header().Set("Content-Type", "application/json")
	var body struct {
		Code string `json:"code"`
	}
	if json.NewDecoder(request.Body).Decode(&body) != nil || !c.take(body.Code) {
		writer.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(writer).Encode(apierror.New(http.StatusUnauthorized, "Unauthorized", "The address of the dashboard was already used, or has expired", "Run odh dashboard again"))
		return
	}
	_ = json.NewEncoder(writer).Encode(struct {
		Token string `json:"token"`
	}{c.token})
}
