// SPDX-License-Identifier: Apache-2.0

import { Alert, AlertActionCloseButton, AlertGroup, Button, List, ListItem, Modal, ModalBody, ModalFooter, ModalHeader } from '@patternfly/react-core';
import { useCallback, useState, type ReactNode } from 'react';
import type { Problem } from '../api/client';
import { useSession } from '../session/session';
import { ProblemAlert } from '../shared/states';
import type { Action, Target } from './actions';

interface Result {
  action: Action;
  done: number;
  failed: { job: Target; problem: Problem }[];
}

/** useActions runs actions on jobs: it asks before anything is lost, and shows the result. After a success, onDone gets the jobs that exist then. */
export function useActions(onDone: (jobs: Target[]) => void): { start: (action: Action, jobs: Target[]) => void; dialogs: ReactNode } {
  const { client } = useSession();
  const [asked, setAsked] = useState<{ action: Action; jobs: Target[] }>();
  const [result, setResult] = useState<Result>();

  const run = useCallback(
    async (action: Action, jobs: Target[]) => {
      setAsked(undefined);
      const failed: Result['failed'] = [];
      const after: Target[] = [];
      for (const job of jobs) {
        await action.run(client, job).then(
          (name) => name && after.push({ ...job, name }),
          (problem: Problem) => failed.push({ job, problem }),
        );
      }
      setResult({ action, done: jobs.length - failed.length, failed });
      if (failed.length === 0) onDone(after);
    },
    [client, onDone],
  );

  // Rows of the table are memoized with it.
  const start = useCallback(
    (action: Action, jobs: Target[]) => {
      if (action.loss || jobs.length > 1) setAsked({ action, jobs });
      else void run(action, jobs);
    },
    [run],
  );

  const dialogs = (
    <>
      {asked && (
        <Modal isOpen variant="small" onClose={() => setAsked(undefined)} aria-labelledby="confirm-title">
          <ModalHeader title={`${asked.action.name} ${asked.jobs.length === 1 ? asked.jobs[0]?.name : `${asked.jobs.length} jobs`}?`} labelId="confirm-title" />
          <ModalBody>
            {asked.action.loss && <p>{asked.action.loss}</p>}
            {asked.jobs.length > 1 && (
              <List>
                {asked.jobs.slice(0, 20).map((job) => (
                  <ListItem key={`${job.kind}/${job.namespace}/${job.name}`}>{`${job.namespace}/${job.name}`}</ListItem>
                ))}
                {asked.jobs.length > 20 && <ListItem>and {asked.jobs.length - 20} more</ListItem>}
              </List>
            )}
          </ModalBody>
          <ModalFooter>
            <Button variant={asked.action.loss ? 'danger' : 'primary'} onClick={() => void run(asked.action, asked.jobs)}>
              {asked.action.name}
            </Button>
            <Button variant="link" onClick={() => setAsked(undefined)}>
              Cancel
            </Button>
          </ModalFooter>
        </Modal>
      )}
      <AlertGroup isToast isLiveRegion>
        {result && result.failed.length === 0 && (
          <Alert
            variant="success"
            title={`${result.done === 1 ? '1 job is' : `${result.done} jobs are`} ${result.action.done}`}
            timeout={6000}
            onTimeout={() => setResult(undefined)}
            actionClose={<AlertActionCloseButton onClose={() => setResult(undefined)} />}
          />
        )}
      </AlertGroup>
      {result && result.failed.length > 0 && (
        <Modal isOpen variant="medium" onClose={() => setResult(undefined)} aria-labelledby="failed-title">
          <ModalHeader title={`${result.failed.length} of ${result.failed.length + result.done} jobs are not ${result.action.done}`} labelId="failed-title" />
          <ModalBody>
            {result.failed.map(({ job, problem }) => (
              <ProblemAlert key={`${job.kind}/${job.namespace}/${job.name}`} title={`${job.namespace}/${job.name}`} problem={problem} />
            ))}
          </ModalBody>
          <ModalFooter>
            <Button onClick={() => setResult(undefined)}>Close</Button>
          </ModalFooter>
        </Modal>
      )}
    </>
  );
  return { start, dialogs };
}
