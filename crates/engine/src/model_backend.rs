//! The real model behind the engine's seam.

use crate::backend::{Accepted, Backend, KvPages, Refused, Rows, Shape, Table};
use crate::executors::{Executors, LinearWork, Ran, Site};
use crate::model_pass::ModelPass;
use crate::request::EngineError;
use duet_kernels::crew::{Crew, Solo};
use duet_model::encoder::{Encoder, EncoderPass};
use duet_model::forward::{
    Activations, AttentionStats, BestOfRow, ContextHead, ExpertStats, FateCounts, Node, NodeInputs, NodeOrder,
    NodeOutputs, NotRun, Pass, PassError, PassRefused, Segment,
};
use duet_model::kv::{KvError, KvPool, KvTable};
use duet_model::tokenizer::Detokenizer;
use duet_model::{ExpertMemoryStats, ExpertReads, Model, Tell};
use duet_types::{Class, LaneId, LaneSet, RequestId, TokenId, Tokens};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A model, its KV memory and its activation buffers.
#[derive(Debug)]
pub(crate) struct ModelBackend {
    model: Arc<Model>,
    encoder: Option<Arc<Encoder>>,
    pool: KvPool,
    shape: Shape,
    order: NodeOrder,
    /// Rows that activation buffers hold: a prefill chunk and a decode batch.
    rows: usize,
    executors: Arc<Executors>,
    /// Buffers that no pass uses. At most one for each pass that was ever under way at once.
    spare: Mutex<Vec<Activations>>,
}

impl ModelBackend {
    /// `context` is at most the model's; a pass has at most `rows` rows.
    pub(crate) fn new(
        model: Arc<Model>,
        pool: KvPool,
        context: Tokens,
        rows: Tokens,
        executors: Arc<Executors>,
    ) -> Self {
        let (vocabulary, hidden) = (model.config().vocabulary, model.blueprint().hidden);
        let shape = Shape { context, vocabulary, hidden };
        let order = NodeOrder::with_launches(model.config().layers, executors.launches());
        let spare = Mutex::default();
        Self { model, encoder: None, pool, shape, order, rows: rows.as_usize(), executors, spare }
    }

    /// The same with an encoder beside the model.
    pub(crate) fn beside(self, encoder: Option<Arc<Encoder>>) -> Self {
        Self { encoder, ..self }
    }

    pub(crate) fn encoder(&self) -> Option<&Arc<Encoder>> {
        self.encoder.as_ref()
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Where linear work was done.
    pub(crate) fn linear_work(&self) -> LinearWork {
        self.executors.linear_work()
    }

    fn begin_encoding(&self, rows: Rows<KvTable>) -> Result<ModelPass, Refused<KvTable>> {
        let Rows { table, texts, .. } = rows;
        let begun = match (&self.encoder, texts) {
            (Some(encoder), Some(texts)) => encoder.begin(texts).map_err(refusal),
            _ => Err(no_decoder()),
        };
        match begun {
            Ok(pass) => Ok(ModelPass::Encoder(pass, table)),
            Err(error) => Err(Refused { error, tables: vec![table] }),
        }
    }

    fn end_encoding(&self, pass: EncoderPass, table: KvTable) -> Vec<KvTable> {
        if let Some(encoder) = &self.encoder {
            encoder.end(pass);
        }
        vec![table]
    }

    fn take_activations(&self) -> Activations {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Activations::new(&self.model, self.rows))
    }

    fn give_back(&self, activations: Activations) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(activations);
    }

    fn take_back(&self, (activations, tables): (Activations, Vec<KvTable>)) -> Vec<KvTable> {
        self.give_back(activations);
        tables
    }
}

fn no_decoder() -> EngineError {
    EngineError::Internal("a pass of another model".to_owned())
}

impl Backend for ModelBackend {
    type Table = KvTable;
    type Pass = ModelPass;
    type Text = Detokenizer;
    type Vocabulary = ContextHead;
    type Inputs = NodeInputs;
    type Outputs = NodeOutputs;

    fn device_lanes(&self) -> LaneSet {
        self.executors.device_lanes()
    }

    fn take_failures(&self, lanes: LaneSet) -> LaneSet {
        self.executors.take_failures(lanes)
    }

    fn failed(&self) -> LaneSet {
        self.executors.failed()
    }

    fn probe(&self, lane: LaneId) -> Result<(), NotRun> {
        self.executors.probe(&self.model, lane)
    }

    fn drop_copy(&self, lane: LaneId, request: RequestId) {
        if let Some(spans) = self.executors.device(lane).and_then(|device| device.spans.as_ref()) {
            spans.drop_copy(request);
        }
    }

    fn shape(&self) -> Shape {
        self.shape.clone()
    }

    fn nodes(&self) -> usize {
        self.order.count()
    }

    fn cuts(&self) -> Tokens {
        self.model.cuts()
    }

    fn kv_pages(&self) -> KvPages {
        KvPages { free: self.pool.free_pages(), capacity: self.pool.capacity_pages() }
    }

    fn table(&self) -> KvTable {
        self.pool.table()
    }

    fn begin(&self, mut rows: Vec<Rows<KvTable>>) -> Result<ModelPass, Refused<KvTable>> {
        if let [Rows { texts: Some(_), .. }] = rows.as_slice() {
            return self.begin_encoding(rows.remove(0));
        }
        let segment = |Rows { request, table: kv, tokens, parents, .. }| Segment { request, kv, tokens, parents };
        let segments = rows.into_iter().map(segment).collect();
        let pass = Pass::new(&self.model, self.take_activations(), segments).map_err(|refused| {
            let PassRefused { error, activations, segments } = *refused;
            self.give_back(activations);
            Refused { error: refusal(error), tables: segments.into_iter().map(|segment| segment.kv).collect() }
        })?;
        Ok(ModelPass::Decoder(Box::new(pass)))
    }

    fn set_class(&self, pass: &mut ModelPass, class: Class) {
        if let Some(pass) = pass.decoder_mut() {
            pass.set_class(class);
        }
    }

    fn set_head_rows(&self, pass: &mut ModelPass, rows: Range<usize>) {
        // Launches of experts take all rows, and count where they go.
        if self.executors.launches() == 0
            && let Some(pass) = pass.decoder_mut()
        {
            pass.set_head_rows(rows);
        }
    }

    fn run(
        &self,
        pass: &mut ModelPass,
        nodes: Range<usize>,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Ran, EngineError> {
        let pass = match (pass, &self.encoder) {
            (ModelPass::Decoder(pass), _) => pass,
            (ModelPass::Encoder(pass, _), Some(encoder)) => {
                encoder.run(pass, nodes, rows, site.crew);
                return Ok(Ran::ToItsEnd);
            }
            (ModelPass::Encoder(..), None) => return Err(no_decoder()),
        };
        let nodes = nodes.map(|index| self.order.node(index));
        self.executors.run_nodes(&self.model, pass, nodes, rows, site)
    }

    fn when_ready(&self, pass: &ModelPass, tell: Tell) -> Option<Tell> {
        match pass.decoder() {
            Some(pass) => pass.when_ready(tell),
            None => Some(tell),
        }
    }

    fn inputs(&self, pass: &mut ModelPass, nodes: Range<usize>, site: Site<'_>) -> Option<NodeInputs> {
        let pass = pass.decoder_mut()?;
        let node = self.order.node(nodes.end.checked_sub(1)?);
        if !self.executors.runs_apart(node, site) {
            return None;
        }
        if nodes.start == 0 {
            // Whoever has other rows embeds them again, which changes nothing.
            self.model.run_node(pass, Node::Embed, 0..pass.rows(), &Solo);
        }
        self.model.inputs_of(pass, node)
    }

    fn run_apart(
        &self,
        inputs: &NodeInputs,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Option<NodeOutputs>, EngineError> {
        self.executors.run_apart(inputs, rows, site)
    }

    fn join(&self, pass: &mut ModelPass, outputs: &NodeOutputs, crew: &dyn Crew) -> Result<(), EngineError> {
        let pass = pass.decoder_mut().ok_or_else(no_decoder)?;
        self.model.take_outputs(pass, outputs, crew).map_err(|error| EngineError::Internal(error.to_string()))
    }

    fn logits(
        &self,
        pass: &mut ModelPass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let pass = pass.decoder_mut().ok_or_else(no_decoder)?;
        self.executors.logits(&self.model, pass, rows, logits, site)
    }

    fn seek_best(&self, pass: &mut ModelPass, rows: &[usize], count: usize) {
        if let Some(pass) = pass.decoder_mut() {
            pass.seek_best(rows, count);
        }
    }

    fn best(
        &self,
        pass: &mut ModelPass,
        rows: &[usize],
        count: usize,
        site: Site<'_>,
    ) -> Result<Option<Vec<BestOfRow>>, EngineError> {
        let pass = pass.decoder_mut().ok_or_else(no_decoder)?;
        self.executors.best(&self.model, pass, rows, count, site)
    }

    fn add_hidden(&self, pass: &ModelPass, rows: Range<usize>, sum: &mut [f64]) {
        if let Some(pass) = pass.decoder() {
            self.model.add_hidden(pass, rows, sum);
        }
    }

    fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    fn encoded(&self, pass: &ModelPass) -> Vec<Vec<f32>> {
        match (pass, &self.encoder) {
            (ModelPass::Encoder(pass, _), Some(encoder)) => encoder.results(pass),
            _ => Vec::new(),
        }
    }

    fn vocabulary_of(&self, text: &[TokenId]) -> Option<ContextHead> {
        // Without the last layer as with it; without many (Gemma 4) it would say nothing.
        let left_out = self.model.order().layer(self.model.nodes_for_all_rows())..self.model.config().layers;
        (left_out.len() <= 1).then(|| self.model.context_head(text))
    }

    fn successors(
        &self,
        pass: &mut ModelPass,
        rows: Range<usize>,
        among: Option<&ContextHead>,
        count: usize,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>> {
        let Some(pass) = pass.decoder_mut() else { return Vec::new() };
        let macs = among.map_or(self.model.work().head.macs, ContextHead::macs);
        self.executors.did_by_crew(rows.len() as u64 * macs);
        match among {
            Some(head) => self.model.likeliest_among(pass, rows, head, count, crew),
            None => self.model.top_k(pass, &rows.collect::<Vec<_>>(), count, crew),
        }
    }

    fn fates(&self, pass: &ModelPass, rows: Range<usize>) -> FateCounts {
        pass.decoder().map(|pass| pass.fates(rows)).unwrap_or_default()
    }

    fn expert_reads(&self, pass: &ModelPass) -> ExpertReads {
        pass.decoder().map(Pass::expert_reads).unwrap_or_default()
    }

    fn expert_stats(&self) -> ExpertStats {
        self.executors.expert_stats()
    }

    fn expert_memory_stats(&self) -> Option<ExpertMemoryStats> {
        self.model.expert_memory_stats()
    }

    fn attention_stats(&self) -> AttentionStats {
        self.executors.attention_stats()
    }

    fn finish(&self, pass: ModelPass, accepted: &[Accepted]) -> Vec<KvTable> {
        let pass = match pass {
            ModelPass::Decoder(pass) => *pass,
            ModelPass::Encoder(pass, table) => return self.end_encoding(pass, table),
        };
        if accepted.iter().all(|accepted| *accepted == Accepted::All) {
            return self.take_back(pass.finish());
        }
        let rows = accepted.iter().zip(pass.segment_rows());
        let paths: Vec<Vec<usize>> = rows
            .map(|(accepted, rows)| match accepted {
                Accepted::All => (0..rows).collect(),
                Accepted::Path(path) => path.clone(),
            })
            .collect();
        self.take_back(pass.finish_accepting(&paths))
    }

    fn abandon(&self, pass: ModelPass) -> Vec<KvTable> {
        match pass {
            ModelPass::Decoder(pass) => self.take_back(pass.abandon()),
            ModelPass::Encoder(pass, table) => self.end_encoding(pass, table),
        }
    }

    fn save(&self, table: &KvTable, out: &mut dyn Write) -> io::Result<()> {
        table.write_to(out)
    }

    fn load(&self, positions: Tokens, prefix: Tokens, from: &mut dyn Read) -> io::Result<KvTable> {
        self.pool.read_table_of(positions, prefix, from)
    }

    fn warm_memory(&self) {
        self.pool.warm();
    }

    fn text(&self) -> Detokenizer {
        self.model.tokenizer().detokenizer()
    }

    fn push_text(&self, text: &mut Detokenizer, token: TokenId) -> String {
        text.push(self.model.tokenizer(), token)
    }

    fn finish_text(&self, text: &mut Detokenizer) -> String {
        text.finish()
    }

    fn special_name(&self, token: TokenId) -> Option<&str> {
        self.model.tokenizer().text_of_special(token)
    }

    fn ends_turn(&self, token: TokenId) -> bool {
        self.model.tokenizer().is_end_of_generation(token)
    }
}

/// Why a pass does not begin.
fn refusal(error: PassError) -> EngineError {
    match error {
        PassError::Kv(error) => EngineError::OutOfMemory(error.to_string()),
        error => EngineError::Internal(error.to_string()),
    }
}

impl Table for KvTable {
    fn len(&self) -> Tokens {
        KvTable::len(self)
    }

    fn truncate(&mut self, len: Tokens) {
        KvTable::truncate(self, len);
    }

    fn fork(&self, prefix: Tokens) -> Result<Self, KvError> {
        KvTable::fork(self, prefix)
    }

    fn expect(&mut self, positions: Tokens) {
        KvTable::expect(self, positions);
    }

    fn would_pass(&self, positions: Tokens) -> bool {
        KvTable::would_pass(self, positions)
    }

    fn cuts_from(&self) -> Tokens {
        KvTable::cuts_from(self)
    }
}
