// SPDX-License-Identifier: Apache-2.0

import { Alert, AlertActionLink } from '@patternfly/react-core';
import { Component, type ReactNode } from 'react';

interface Props {
  children: ReactNode;
  /** address of the page: another page is shown, whatever the error of this one was. */
  address?: string;
  /** actions beside Reload; dismiss shows the page again. */
  actions?: (dismiss: () => void) => ReactNode;
}

interface State {
  error?: Error;
}

/** ErrorBoundary shows an error of a page instead of an empty window. */
export class ErrorBoundary extends Component<Props, State> {
  override state: State = {};

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidUpdate(before: Props) {
    if (this.state.error && before.address !== this.props.address) this.dismiss();
  }

  private readonly dismiss = () => this.setState({ error: undefined });

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return <PageError error={error} actions={this.props.actions?.(this.dismiss)} />;
  }
}

function PageError({ error, actions }: { error: Error; actions?: ReactNode }) {
  return (
    <Alert
      variant="danger"
      isInline
      component="h1"
      title="The page cannot be shown"
      actionLinks={
        <>
          <AlertActionLink onClick={() => location.reload()}>Reload</AlertActionLink>
          {actions}
        </>
      }
    >
      <p className="tr-text">{error.message}</p>
      <p>Reload the page: the server may have been updated.</p>
    </Alert>
  );
}
