// SPDX-License-Identifier: Apache-2.0

import {
  Alert,
  Button,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadMain,
  MastheadToggle,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSection,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from '@patternfly/react-core';
import BarsIcon from '@patternfly/react-icons/dist/esm/icons/bars-icon';
import type { ReactNode } from 'react';
import { Link, useLocation } from 'react-router';
import { useConnection } from '../live/live-jobs';
import { useSession } from '../session/session';
import { chooseTheme, useTheme } from './theme';

const areas = [
  ['/jobs', 'Jobs'],
  ['/history', 'History'],
  ['/runtimes', 'Runtimes'],
  ['/cluster', 'Cluster'],
] as const;

/** Layout is the frame around every page. */
export function Layout({ children }: { children: ReactNode }) {
  const { pathname } = useLocation();
  return (
    <Page
      mainContainerId="main"
      isManagedSidebar
      isContentFilled
      skipToContent={<SkipToContent href="#main">Skip to content</SkipToContent>}
      masthead={<Head />}
      sidebar={
        <PageSidebar>
          <PageSidebarBody>
            <Nav aria-label="Areas">
              <NavList>
                {areas.map(([path, name]) => (
                  <NavItem key={path} isActive={pathname.startsWith(path)}>
                    <Link to={path}>{name}</Link>
                  </NavItem>
                ))}
              </NavList>
            </Nav>
          </PageSidebarBody>
        </PageSidebar>
      }
    >
      <ConnectionBanner />
      {children}
    </Page>
  );
}

function Head() {
  const session = useSession();
  const theme = useTheme();
  return (
    <Masthead>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton isHamburgerButton aria-label="Navigation">
            <BarsIcon />
          </PageToggleButton>
        </MastheadToggle>
        <MastheadBrand>
          <Link className="tr-brand" to="/jobs">
            Trireme
          </Link>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isStatic>
          <ToolbarContent>
            <ToolbarGroup align={{ default: 'alignEnd' }}>
              <ToolbarItem>
                <Button variant="plain" onClick={() => chooseTheme(theme === 'dark' ? 'light' : 'dark')}>
                  {theme === 'dark' ? 'Light theme' : 'Dark theme'}
                </Button>
              </ToolbarItem>
              <ToolbarItem alignSelf="center">
                {session.user ?? (
                  <Button variant="plain" onClick={() => session.signOut()}>
                    Sign out
                  </Button>
                )}
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
}

/** ConnectionBanner says that what the page shows may be old. */
function ConnectionBanner() {
  const connection = useConnection();
  const { pathname } = useLocation();
  if (connection.state === 'lost') {
    return (
      <PageSection hasBodyWrapper={false}>
        <Alert variant="warning" isInline title="The connection is lost. The page shows the last known state and connects again by itself" component="h2">
          {connection.problem.message}
        </Alert>
      </PageSection>
    );
  }
  // The list of jobs shows a refusal itself, and asks for a namespace.
  if (connection.state === 'refused' && pathname !== '/jobs') {
    return (
      <PageSection hasBodyWrapper={false}>
        <Alert
          variant="warning"
          isInline
          title="You have no permission to watch these jobs. The page of a job reads it again every 10 seconds"
          actionLinks={<Link to="/jobs">Choose a namespace</Link>}
          component="h2"
        >
          {connection.problem.message}
        </Alert>
      </PageSection>
    );
  }
  return null;
}
