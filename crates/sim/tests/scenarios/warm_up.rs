//! Graphs for whole prompts are compiled while their requests wait.

use crate::check;
use duet_scheduler::machine::Covers;
use duet_sim::{Scenario, Timeline};
use expect_test::expect;

/// B waits for A to be read; its graph is ready before its prefill begins, which runs wholly on the NPU and leaves the iGPU to decode.
#[test]
fn a_graph_that_is_ready_takes_the_prefill_off_the_dynamic_lane() {
    check(
        "npu-igpu  policy agent-xpu
         at 0ms  A  proactive  prompt 300  output 4
         at 0ms  B  proactive  prompt 150  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B proactive
            0.00                 compile  graph for B[150 rows]
            0.00                 compile  graph for A[300 rows]
            0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
            1.00      npu        prefill  A[0..300] n0..2 r100..200      1.00  chunk
            2.00      npu        prefill  A[0..300] n0..2 r200..300      1.00  chunk
            3.00      igpu       prefill  A[0..300] n2..3                0.30  dynamic shape
            3.30      npu        prefill  A[0..300] n3..4 r0..100        1.00  chunk
            4.30      npu        prefill  A[0..300] n3..4 r100..200      1.00  chunk
            5.00                 ready    graph for B
            5.00                 wait     until 55.00                          expiry
            5.30      npu        prefill  A[0..300] n3..4 r200..300      1.00  chunk
            6.30      npu        prefill  A[0..300] n4..5 r0..100        1.00  chunk
            7.30      npu        prefill  A[0..300] n4..5 r100..200      1.00  chunk
            8.30      npu        prefill  A[0..300] n4..5 r200..300      1.00  chunk
            9.30      igpu       prefill  A[0..300] n5..6                0.30  dynamic shape
            9.60      npu        prefill  A[0..300] n6..7 r0..100        1.00  chunk
            10.00                ready    graph for A
            10.60     npu        prefill  A[0..300] n6..7 r100..200      1.00  chunk
            11.60     npu        prefill  A[0..300] n6..7 r200..300      1.00  chunk
            12.60                reclaim  graph for A
            12.60     npu        prefill  B[0..150] n0..3                1.80  graph ready
            12.60     igpu       decode   A[300] n0..5                   1.80  fills the gap
            14.40     npu        prefill  B[0..150] n3..4                1.50  graph ready
            14.40     igpu       decode   A[300] n5..7                   0.80  goes on
            15.20     igpu       decode   A[301] n0..5                   1.80  fills the gap
            15.90     npu        prefill  B[0..150] n4..6                1.80  graph ready
            17.00     igpu       decode   A[301] n5..7                   0.80  goes on
            17.70     npu        prefill  B[0..150] n6..7                1.50  graph ready
            17.81     igpu       decode   A[302] n0..5                   1.80  fills the gap
            19.20                reclaim  graph for B
            19.20                end      B stop
            19.61     igpu       decode   A[302] n5..7                   0.80  goes on
            20.41                end      A stop
        "#]],
    );
}

/// Chunks and remainders.
#[test]
fn a_graph_that_is_ready_takes_the_prefill_off_the_dynamic_lane_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms  A  proactive  prompt 300  output 4
         at 0ms  B  proactive  prompt 150  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B proactive
            0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
            1.00      npu        prefill  A[0..300] n0..2 r100..200      1.00  chunk
            2.00      npu        prefill  A[0..300] n0..2 r200..300      1.00  chunk
            3.00      igpu       prefill  A[0..300] n2..3                0.30  dynamic shape
            3.30      npu        prefill  A[0..300] n3..4 r0..100        1.00  chunk
            4.30      npu        prefill  A[0..300] n3..4 r100..200      1.00  chunk
            5.30      npu        prefill  A[0..300] n3..4 r200..300      1.00  chunk
            6.30      npu        prefill  A[0..300] n4..5 r0..100        1.00  chunk
            7.30      npu        prefill  A[0..300] n4..5 r100..200      1.00  chunk
            8.30      npu        prefill  A[0..300] n4..5 r200..300      1.00  chunk
            9.30      igpu       prefill  A[0..300] n5..6                0.30  dynamic shape
            9.60      npu        prefill  A[0..300] n6..7 r0..100        1.00  chunk
            10.60     npu        prefill  A[0..300] n6..7 r100..200      1.00  chunk
            11.60     npu        prefill  A[0..300] n6..7 r200..300      1.00  chunk
            12.60     npu        prefill  B[0..150] n0..2 r0..100        1.00  chunk
            12.60     igpu       prefill  B[0..150] n0..2 r100..150      1.00  dynamic shape
            13.60     igpu       prefill  B[0..150] n2..3                0.15  dynamic shape
            13.75     npu        prefill  B[0..150] n3..4 r0..100        1.00  chunk
            13.75     igpu       prefill  B[0..150] n3..4 r100..150      1.00  dynamic shape
            14.75     npu        prefill  B[0..150] n4..5 r0..100        1.00  chunk
            14.75     igpu       prefill  B[0..150] n4..5 r100..150      1.00  dynamic shape
            15.75     igpu       prefill  B[0..150] n5..6                0.15  dynamic shape
            15.90     npu        prefill  B[0..150] n6..7 r0..100        1.00  chunk
            15.90     igpu       prefill  B[0..150] n6..7 r100..150      1.00  dynamic shape
            16.90                end      B stop
            16.90     igpu       decode   A[300] n0..5                   1.80  fills the gap
            18.70     igpu       decode   A[300] n5..7                   0.80  goes on
            19.50     igpu       decode   A[301] n0..5                   1.80  fills the gap
            21.30     igpu       decode   A[301] n5..7                   0.80  goes on
            22.11     igpu       decode   A[302] n0..5                   1.80  fills the gap
            23.91     igpu       decode   A[302] n5..7                   0.80  goes on
            24.71                end      A stop
        "#]],
    );
}

/// A is preempted, and its graph is ready when it resumes.
#[test]
fn a_preempted_request_goes_on_with_its_graph() {
    check(
        "npu-igpu  policy agent-xpu  compile 8ms
         at 0ms  A  proactive  prompt 200  output 1
         at 2ms  B  reactive   prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 compile  graph for A[200 rows]
            0.00      npu        prefill  A[0..200] n0..2 r0..100        1.00  chunk
            1.00      npu        prefill  A[0..200] n0..2 r100..200      1.00  chunk
            2.00                 arrive   B reactive
            2.00                 compile  graph for B[100 rows]
            2.00      npu        prefill  B[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            3.00      igpu       prefill  B[0..100] n2..3                0.10  dynamic shape
            3.10      npu        prefill  B[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            4.10      npu        prefill  B[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            5.10      igpu       prefill  B[0..100] n5..6                0.10  dynamic shape
            5.20      npu        prefill  B[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            6.20                 reclaim  graph for B
            6.20                 end      B stop
            6.20      igpu       prefill  A[0..200] n2..3                0.20  dynamic shape
            6.40      npu        prefill  A[0..200] n3..4 r0..100        1.00  chunk
            7.40      npu        prefill  A[0..200] n3..4 r100..200      1.00  chunk
            8.00                 ready    graph for A
            8.40      npu        prefill  A[0..200] n4..5                2.00  graph ready
            10.40     npu        prefill  A[0..200] n5..6                0.40  graph ready
            10.80     npu        prefill  A[0..200] n6..7                2.00  graph ready
            12.80                reclaim  graph for A
            12.80                end      A stop
        "#]],
    );
}

/// The graph of B stands unused for 6 ms.
#[test]
fn an_unused_graph_expires() {
    check(
        "npu-igpu  policy agent-xpu  compile 2ms  expiry 6ms
         at 0ms  A  reactive   prompt 400  output 2
         at 0ms  B  proactive  prompt 250  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 arrive   B proactive
            0.00                 compile  graph for A[400 rows]
            0.00      npu        prefill  A[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            0.00      igpu       prefill  A[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            0.00                 compile  graph for B[250 rows]
            1.00      npu        prefill  A[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            2.00      npu        prefill  A[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            2.00                 ready    graph for A
            3.00      npu        prefill  A[0..400] n2..3                0.80  graph ready
            3.80      npu        prefill  A[0..400] n3..4                4.00  graph ready
            4.00                 ready    graph for B
            4.00                 wait     until 10.00                          expiry
            7.80      npu        prefill  A[0..400] n4..5                4.00  graph ready
            10.00                reclaim  graph for B
            11.80     npu        prefill  A[0..400] n5..6                0.80  graph ready
            12.60     npu        prefill  A[0..400] n6..7                4.00  graph ready
            16.60                reclaim  graph for A
            16.60     npu        prefill  B[0..250] n0..2 r0..100        1.00  chunk
            16.60     igpu       prefill  B[0..250] n0..2 r200..250      1.00  dynamic shape
            17.60     npu        prefill  B[0..250] n0..2 r100..200      1.00  chunk
            17.60     igpu       decode   A[400] n0..5                   1.90  reactive first
            19.50     igpu       prefill  B[0..250] n2..3                0.25  dynamic shape
            19.75     npu        prefill  B[0..250] n3..4 r0..100        1.00  chunk
            19.75     igpu       prefill  B[0..250] n3..4 r200..250      1.00  dynamic shape
            20.75     npu        prefill  B[0..250] n3..4 r100..200      1.00  chunk
            20.75     igpu       decode   A[400] n5..7                   0.90  resumes
            21.65                end      A stop
            21.75     npu        prefill  B[0..250] n4..5 r0..100        1.00  chunk
            21.75     igpu       prefill  B[0..250] n4..5 r200..250      1.00  dynamic shape
            22.75     npu        prefill  B[0..250] n4..5 r100..200      1.00  chunk
            23.75     igpu       prefill  B[0..250] n5..6                0.25  dynamic shape
            24.00     npu        prefill  B[0..250] n6..7 r0..100        1.00  chunk
            24.00     igpu       prefill  B[0..250] n6..7 r200..250      1.00  dynamic shape
            25.00     npu        prefill  B[0..250] n6..7 r100..200      1.00  chunk
            26.00                end      B stop
        "#]],
    );
}

/// It stays, and is used.
#[test]
fn an_unused_graph_expires_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  compile 2ms  expiry 6ms  without graph-reclaim
         at 0ms  A  reactive   prompt 400  output 2
         at 0ms  B  proactive  prompt 250  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 arrive   B proactive
            0.00                 compile  graph for A[400 rows]
            0.00      npu        prefill  A[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            0.00      igpu       prefill  A[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            0.00                 compile  graph for B[250 rows]
            1.00      npu        prefill  A[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            2.00      npu        prefill  A[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            2.00                 ready    graph for A
            3.00      npu        prefill  A[0..400] n2..3                0.80  graph ready
            3.80      npu        prefill  A[0..400] n3..4                4.00  graph ready
            4.00                 ready    graph for B
            7.80      npu        prefill  A[0..400] n4..5                4.00  graph ready
            11.80     npu        prefill  A[0..400] n5..6                0.80  graph ready
            12.60     npu        prefill  A[0..400] n6..7                4.00  graph ready
            16.60     npu        prefill  B[0..250] n0..1                0.00  graph ready
            16.60     igpu       decode   A[400] n0..5                   1.90  reactive first
            16.60     npu        prefill  B[0..250] n1..2 r0..100        1.00  graph ready
            17.60     npu        prefill  B[0..250] n1..2 r100..200      1.00  graph ready
            18.50     igpu       decode   A[400] n5..7                   0.90  goes on
            18.60     npu        prefill  B[0..250] n1..2 r200..250      1.00  graph ready
            19.40                reclaim  graph for A
            19.40                end      A stop
            19.60     npu        prefill  B[0..250] n2..3                0.50  graph ready
            20.10     npu        prefill  B[0..250] n3..4 r0..100        1.00  graph ready
            21.10     npu        prefill  B[0..250] n3..4 r100..200      1.00  graph ready
            22.10     npu        prefill  B[0..250] n3..4 r200..250      1.00  graph ready
            23.10     npu        prefill  B[0..250] n4..5 r0..100        1.00  graph ready
            24.10     npu        prefill  B[0..250] n4..5 r100..200      1.00  graph ready
            25.10     npu        prefill  B[0..250] n4..5 r200..250      1.00  graph ready
            26.10     npu        prefill  B[0..250] n5..6                0.50  graph ready
            26.60     npu        prefill  B[0..250] n6..7 r0..100        1.00  graph ready
            27.60     npu        prefill  B[0..250] n6..7 r100..200      1.00  graph ready
            28.60     npu        prefill  B[0..250] n6..7 r200..250      1.00  graph ready
            29.60                reclaim  graph for B
            29.60                end      B stop
        "#]],
    );
}

/// The compiler gives up.
#[test]
fn without_a_graph_the_prefill_goes_on_as_it_would() {
    check(
        "npu-igpu  policy agent-xpu
         at 0ms  A  reactive  prompt 100  output 1  graph-fails",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 compile  graph for A[100 rows]
            0.00      npu        prefill  A[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            1.00      igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  A[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            2.10      npu        prefill  A[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            3.10      igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  A[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            4.20                 reclaim  graph for A
            4.20                 end      A stop
        "#]],
    );
}

/// A device whose graphs lack attention: a background prompt whose nodes would be cut gets none, since chunks have their own; a
/// shorter one gets one, and so does a person's of any length, whose nodes run whole.
#[test]
fn background_prompts_whose_nodes_are_cut_have_no_graphs() {
    let scenario = "npu-igpu  policy agent-xpu
         at 0ms   A  proactive  prompt 300  output 1
         at 0ms   B  proactive  prompt 150  output 1
         at 40ms  C  reactive   prompt 300  output 1";
    let mut scenario: Scenario = scenario.parse().unwrap();
    let exact = scenario.config.machine.lanes.iter_mut().filter_map(|lane| lane.capabilities.exact.as_mut());
    exact.for_each(|exact| exact.covers = Covers::TokenWise);
    expect![[r#"
        0.00                 arrive   A proactive
        0.00                 arrive   B proactive
        0.00                 compile  graph for B[150 rows]
        0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
        1.00      npu        prefill  A[0..300] n0..2 r100..200      1.00  chunk
        2.00      npu        prefill  A[0..300] n0..2 r200..300      1.00  chunk
        3.00      igpu       prefill  A[0..300] n2..3                0.30  dynamic shape
        3.30      npu        prefill  A[0..300] n3..4 r0..100        1.00  chunk
        4.30      npu        prefill  A[0..300] n3..4 r100..200      1.00  chunk
        5.00                 ready    graph for B
        5.00                 wait     until 55.00                          expiry
        5.30      npu        prefill  A[0..300] n3..4 r200..300      1.00  chunk
        6.30      npu        prefill  A[0..300] n4..5 r0..100        1.00  chunk
        7.30      npu        prefill  A[0..300] n4..5 r100..200      1.00  chunk
        8.30      npu        prefill  A[0..300] n4..5 r200..300      1.00  chunk
        9.30      igpu       prefill  A[0..300] n5..6                0.30  dynamic shape
        9.60      npu        prefill  A[0..300] n6..7 r0..100        1.00  chunk
        10.60     npu        prefill  A[0..300] n6..7 r100..200      1.00  chunk
        11.60     npu        prefill  A[0..300] n6..7 r200..300      1.00  chunk
        12.60                end      A stop
        12.60     npu        prefill  B[0..150] n0..2                1.50  graph ready
        14.10     igpu       prefill  B[0..150] n2..3                0.15  dynamic shape
        14.25     npu        prefill  B[0..150] n3..4                1.50  graph ready
        15.75     npu        prefill  B[0..150] n4..5                1.50  graph ready
        17.25     igpu       prefill  B[0..150] n5..6                0.15  dynamic shape
        17.40     npu        prefill  B[0..150] n6..7                1.50  graph ready
        18.90                reclaim  graph for B
        18.90                end      B stop
        40.00                arrive   C reactive
        40.00                compile  graph for C[300 rows]
        40.00     npu        prefill  C[0..300] n0..2 r0..100        1.00  balanced, 2 chunks on the static lane
        40.00     igpu       prefill  C[0..300] n0..2 r200..300      2.00  balanced, 2 chunks on the static lane
        41.00     npu        prefill  C[0..300] n0..2 r100..200      1.00  balanced, 2 chunks on the static lane
        42.00     igpu       prefill  C[0..300] n2..3                0.30  dynamic shape
        42.30     npu        prefill  C[0..300] n3..4 r0..100        1.00  balanced, 2 chunks on the static lane
        42.30     igpu       prefill  C[0..300] n3..4 r200..300      2.00  balanced, 2 chunks on the static lane
        43.30     npu        prefill  C[0..300] n3..4 r100..200      1.00  balanced, 2 chunks on the static lane
        44.30     npu        prefill  C[0..300] n4..5 r0..100        1.00  balanced, 2 chunks on the static lane
        44.30     igpu       prefill  C[0..300] n4..5 r200..300      2.00  balanced, 2 chunks on the static lane
        45.00                ready    graph for C
        45.30     npu        prefill  C[0..300] n4..5 r100..200      1.00  balanced, 2 chunks on the static lane
        46.30     igpu       prefill  C[0..300] n5..6                0.30  dynamic shape
        46.60     npu        prefill  C[0..300] n6..7                3.00  graph ready
        49.60                reclaim  graph for C
        49.60                end      C stop
    "#]]
    .assert_eq(scenario.run(Timeline::new(&scenario)).observer.text());
}
