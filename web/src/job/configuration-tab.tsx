// SPDX-License-Identifier: Apache-2.0

import { Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { stringify } from 'yaml';
import { YAMLEditor } from '../create/yaml-editor';
import { CopyButton } from '../shared/copy-button';
import type { TabProps } from './job-tabs';

/** ConfigurationTab shows the job as YAML, without its status and what the API server adds. */
export default function ConfigurationTab({ job }: TabProps) {
  const { apiVersion, kind, metadata, spec } = job;
  const { name, namespace, labels, annotations } = metadata;
  const text = stringify({ apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec });
  return (
    <>
      <Toolbar inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <CopyButton label="Copy" text={text} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      <YAMLEditor label="Configuration of the job" value={text} isReadOnly />
    </>
  );
}
