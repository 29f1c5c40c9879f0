// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// connection to one client.
type connection struct {
	sink    sink
	options Options
}

// sendAll sends messages until there are no more.
func (c *connection) sendAll(messages iter.Seq2[Message, error]) error {
	for message, err := range messages {
		if err == nil {
			err = c.sink.send(message)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendHeartbeats sends heartbeats until the context ends. It returns an error if the
// client is not connected any more.
func (c *connection) sendHeartbeats(ctx context.Context) error {
	heartbeat := time.NewTicker(c.options.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case now := <-heartbeat.C:
			if err := c.sink.aside(heartbeatMessage(now)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func heartbeatMessage(now time.Time) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"HEARTBEAT","timestamp":%q}`, now.UTC().Format(time.RFC3339Nano))
}

// errorMessage is the last message of a failed stream: an API error with a type.
func errorMessage(failed *apierror.Error) json.RawMessage {
	encoded, err := json.Marshal(failed)
	if err != nil {
		panic(fmt.Sprintf("an error cannot be encoded as JSON: %v", err))
	}
	return append([]byte(`{"type":"ERROR",`), encoded[1:]...)
}
