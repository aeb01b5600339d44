//! Exchanging graphs: when a prompt is planned for, what is loaded now, and which kernels wait for it.
//!
//! What is resident, and by which rule, is [`Residency`]'s; here is what it has to know of requests and kernels.

use super::Scheduler;
use crate::command::Command;
use crate::kernel::{Member, Span};
use crate::progressive::{Place, Prompt};
use crate::request_table::{Phase, Row};
use crate::residency::{Residency, Then};
use duet_types::{Class, LaneSet, Net, RequestId, Stage};
use std::collections::BTreeSet;

impl Scheduler {
    /// A kernel from `node` on is about to be launched: plans for the prompt that it reads, begins what is due, and says
    /// whether the kernel has to wait for its graph. Then its lanes are idle until something happens.
    pub(super) fn waits_for_graph(&mut self, members: &[Member], node: usize, lanes: LaneSet) -> bool {
        let Some(residency) = self.residency.as_ref().filter(|residency| residency.concerns(lanes)) else {
            return false;
        };
        let block = residency.block_of(&self.config.heg, node);
        self.plan_for(members);
        self.load_due();
        let Some(residency) = &mut self.residency else { return false };
        let waits = residency.awaits(block);
        if waits {
            self.stalled = self.stalled.union(lanes);
        } else {
            residency.runs();
        }
        waits
    }

    /// What of a kernel is launched now: while graphs are exchanged it ends with its block, so that loads begin at their
    /// places. What is left of it is the policy's to launch, as after any other kernel: a person who came meanwhile goes
    /// first.
    pub(super) fn cut_at_block(&self, span: Span, lanes: LaneSet) -> Span {
        let concerned = self.residency.as_ref().filter(|residency| residency.concerns(lanes));
        let switching = concerned.filter(|residency| residency.is_switching());
        let end = switching.map(|residency| residency.block_end(&self.config.heg, span.nodes.start));
        match end.filter(|end| *end < span.nodes.end) {
            Some(end) => Span { nodes: span.nodes.start..end, ..span },
            None => span,
        }
    }

    /// Begins the load that is due, if there is one.
    pub(super) fn load_due(&mut self) {
        let Some(mut residency) = self.residency.take() else { return };
        let (reads, decodes) = (self.most_urgent(Stage::Prefill), self.most_urgent(Stage::Decode));
        let only_decodes = decodes.is_some_and(|decodes| reads.is_none_or(|reads| decodes < reads));
        if only_decodes && !residency.ends_switched() {
            residency.switch_all();
        }
        let place = self.place(&residency);
        let computing = self.computing(&residency);
        if let Some(load) = residency.begin_due(place, &|block| computing.contains(&block)) {
            self.commands.push_back(Command::LoadGraph(load));
        }
        self.residency = Some(residency);
    }

    /// Follows the prompt of a pass, if it is another one than before, or if others came to wait behind it.
    fn plan_for(&mut self, members: &[Member]) {
        let reader = members.first().filter(|member| member.stage == Stage::Prefill && member.net == Net::Decoder);
        let Some((reader, row)) = reader.and_then(|reader| Some((reader, self.table.get(reader.request)?))) else {
            return;
        };
        let prompt = Prompt { context: reader.rows.start, rows: row.known().saturating_sub(reader.rows.start) };
        let then = self.then(reader);
        // A stream that a person waits for keeps its graphs: all blocks are switched for it.
        let may_switch = self.most_urgent(Stage::Decode).is_none_or(|decodes| reader.class <= decodes);
        let Some(residency) = &mut self.residency else { return };
        if may_switch && residency.follows() != Some((reader.request, then)) {
            residency.follow(reader.request, prompt, then);
        }
    }

    /// What comes after the prompt of a pass.
    fn then(&self, reader: &Member) -> Then {
        let waits = |row: &Row| {
            let id = row.request.id;
            id != reader.request && row.request.class <= reader.class && is_at(row, Stage::Prefill)
        };
        if self.table.iter().any(waits) { Then::MorePrompts } else { Then::Decode }
    }

    /// Where the computation of the followed prompt is.
    fn place(&self, residency: &Residency) -> Place {
        let reads = |request: RequestId| self.table.get(request).filter(|row| row.stage() == Stage::Prefill);
        let Some(row) = residency.follows().and_then(|(request, _)| reads(request)) else { return Residency::END };
        let chunk = row.computed.saturating_sub(residency.followed_from()).0 / residency.chunk().0;
        let block = match row.phase {
            Phase::InPass(pass) => residency.block_of(&self.config.heg, self.passes[&pass].node),
            _ => 0,
        };
        Place { chunk, block }
    }

    /// Blocks on which kernels compute.
    fn computing(&self, residency: &Residency) -> BTreeSet<usize> {
        let heg = &self.config.heg;
        let concerned = self.running.values().filter(|running| residency.concerns(running.lanes));
        concerned.flat_map(|running| residency.blocks_of(heg, &running.span.nodes)).collect()
    }

    /// The most urgent class of which a request is at this stage.
    fn most_urgent(&self, stage: Stage) -> Option<Class> {
        self.table.iter().filter(|row| is_at(row, stage)).map(|row| row.request.class).min()
    }
}

/// Whether a request of the model that answers, whose graphs these are, is at this stage.
fn is_at(row: &Row, stage: Stage) -> bool {
    row.stage() == stage && row.request.net == Net::Decoder
}
