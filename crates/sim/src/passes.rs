//! Passes in truth: which rows have come how far.
//!
//! Checked: a pass begins where its members stand and yields a token only with the last known position; its nodes come
//! in order, and rows that wait for a disk go on when their data is there; a row of a node is given to one lane, once; a request is in one pass at a time, and leaves it before its
//! end only when a kernel failed, a lane was lost, nobody wants any member, or a member is spilled or discarded.

use duet_scheduler::{Completes, Kernel, Member, PassId};
use duet_types::RequestId;
use std::collections::BTreeMap;
use std::ops::Range;

/// All passes under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    under_way: BTreeMap<PassId, Pass>,
    of: BTreeMap<RequestId, PassId>,
}

#[derive(Clone, Debug)]
struct Pass {
    members: Vec<Member>,
    rows: u32,
    node: usize,
    /// Rows of the node that were launched, and the node that their kernels go to.
    given: Vec<Range<u32>>,
    given_to: usize,
    done: u32,
    running: usize,
    /// Rows of the node that were begun, and wait for a disk or go on.
    begun: Option<Begun>,
}

#[derive(Clone, Debug)]
struct Begun {
    rows: Range<u32>,
    is_there: bool,
}

/// What a kernel's end means to its pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    GoesOn,
    /// The pass is complete.
    Complete(Vec<Member>),
}

impl Passes {
    /// Whether a kernel begins a pass.
    pub(crate) fn begins(&self, kernel: &Kernel) -> bool {
        !self.under_way.contains_key(&kernel.pass)
    }

    /// A kernel is launched.
    pub(crate) fn launch(&mut self, kernel: &Kernel, nodes: usize) {
        if self.begins(kernel) {
            self.begin(kernel);
        }
        let pass = self.under_way.get_mut(&kernel.pass).expect("it has begun");
        assert_eq!(pass.members, kernel.members, "the members of pass {} changed", kernel.pass);
        assert_eq!(pass.node, kernel.nodes.start, "the nodes of pass {} come in order", kernel.pass);
        assert!(!kernel.nodes.is_empty() && kernel.nodes.end <= nodes, "there are no nodes {:?}", kernel.nodes);
        let Range { start, end } = kernel.rows;
        assert!(start < end && end <= pass.rows, "pass {} has no rows {:?}", kernel.pass, kernel.rows);
        if let Some(begun) = pass.begun.take() {
            assert!(begun.is_there, "pass {} waits for a disk", kernel.pass);
            assert_eq!(begun.rows, kernel.rows, "rows of pass {} that were begun go on", kernel.pass);
        }
        let taken = pass.given.iter().any(|given| given.start < end && start < given.end);
        assert!(!taken, "rows {:?} of pass {} were given to a lane twice", kernel.rows, kernel.pass);
        let joins = pass.given.is_empty() || pass.given_to == kernel.nodes.end;
        assert!(joins, "parts of pass {} go to different nodes", kernel.pass);
        pass.given.push(kernel.rows.clone());
        pass.given_to = kernel.nodes.end;
        pass.running += 1;
        let given: u32 = pass.given.iter().map(|rows| rows.end - rows.start).sum();
        let last = given == pass.rows && kernel.nodes.end == nodes;
        assert_eq!(kernel.completes == Completes::Pass, last, "what kernel {} completes", kernel.id);
    }

    fn begin(&mut self, kernel: &Kernel) {
        assert_eq!(kernel.nodes.start, 0, "pass {} begins in the middle", kernel.pass);
        for member in &kernel.members {
            let before = self.of.insert(member.request, kernel.pass);
            assert!(before.is_none(), "{} is in two passes", member.request);
        }
        let pass = Pass {
            members: kernel.members.clone(),
            rows: kernel.members.iter().map(|member| member.len().0).sum(),
            node: 0,
            given: Vec::new(),
            given_to: 0,
            done: 0,
            running: 0,
            begun: None,
        };
        self.under_way.insert(kernel.pass, pass);
    }

    /// A kernel ended well. Its pass may have been undone meanwhile, if the other part of the node failed.
    pub(crate) fn done(&mut self, kernel: &Kernel, nodes: usize) -> Ended {
        let Some(pass) = self.under_way.get_mut(&kernel.pass) else { return Ended::GoesOn };
        pass.running -= 1;
        pass.done += kernel.rows.end - kernel.rows.start;
        if pass.done < pass.rows {
            return Ended::GoesOn;
        }
        (pass.node, pass.done) = (kernel.nodes.end, 0);
        pass.given.clear();
        if pass.node < nodes {
            return Ended::GoesOn;
        }
        Ended::Complete(self.undo(kernel.pass))
    }

    /// A kernel gave its lanes back at `node`. Whether its pass still waits for that.
    pub(crate) fn waits(&mut self, kernel: &Kernel, node: usize) -> bool {
        let Some(pass) = self.under_way.get_mut(&kernel.pass) else { return false };
        assert!(kernel.nodes.contains(&node), "kernel {} waits in node {node}", kernel.id);
        pass.running -= 1;
        pass.given.retain(|rows| *rows != kernel.rows);
        pass.node = node;
        pass.begun = Some(Begun { rows: kernel.rows.clone(), is_there: false });
        true
    }

    /// What a pass waits for is there.
    pub(crate) fn data_ready(&mut self, pass: PassId) {
        if let Some(begun) = self.under_way.get_mut(&pass).and_then(|pass| pass.begun.as_mut()) {
            begun.is_there = true;
        }
    }

    /// Ends a pass.
    pub(crate) fn undo(&mut self, pass: PassId) -> Vec<Member> {
        let members = self.under_way.remove(&pass).map(|pass| pass.members).unwrap_or_default();
        for member in &members {
            self.of.remove(&member.request);
        }
        members
    }

    /// The pass that a request is in.
    pub(crate) fn pass_of(&self, request: RequestId) -> Option<PassId> {
        self.of.get(&request).copied()
    }

    /// The members of a pass, and whether a kernel of it is on a lane.
    pub(crate) fn members(&self, pass: PassId) -> (&[Member], bool) {
        let pass = &self.under_way[&pass];
        (&pass.members, pass.running > 0)
    }
}
