// SPDX-License-Identifier: Apache-2.0

import { Button, Modal, ModalBody, ModalFooter, ModalHeader } from '@patternfly/react-core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import type { Problem } from '../api/client';
import type { JobRef } from '../job/use-job';
import { useSession } from '../session/session';
import { ProblemAlert } from '../shared/states';

/** DeleteRecord is a button that deletes a record, after a question. */
export function DeleteRecord({ reference, onDone }: { reference: JobRef; onDone: () => void }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [isAsked, setAsked] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const close = () => {
    setAsked(false);
    setProblem(undefined);
  };
  const run = async () => {
    const params = { params: { path: { namespace: reference.namespace, name: reference.record ?? '' } } };
    try {
      if (reference.plural === 'mpijobs') await client.DELETE('/api/v1/namespaces/{namespace}/history/mpijobs/{name}', params);
      else await client.DELETE('/api/v1/namespaces/{namespace}/history/trainjobs/{name}', params);
    } catch (error) {
      setProblem(error as Problem);
      return;
    }
    queries.removeQueries({ queryKey: ['history', reference.namespace] });
    onDone();
  };
  return (
    <>
      <Button variant="danger" onClick={() => setAsked(true)}>
        Delete record
      </Button>
      {isAsked && (
        <Modal isOpen variant="small" onClose={close} aria-labelledby="delete-record-title">
          <ModalHeader title={`Delete the record of ${reference.name}?`} labelId="delete-record-title" />
          <ModalBody>
            {problem ? <ProblemAlert title="The record is not deleted" problem={problem} /> : 'The record, its log and its metrics cannot be restored.'}
          </ModalBody>
          <ModalFooter>
            <Button variant="danger" onClick={() => void run()}>
              Delete
            </Button>
            <Button variant="link" onClick={close}>
              Cancel
            </Button>
          </ModalFooter>
        </Modal>
      )}
    </>
  );
}
