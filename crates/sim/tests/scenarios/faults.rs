//! Faults of the machine, and what becomes of the requests that they touch.

use crate::check;
use expect_test::expect;

/// A kernel hangs. Its lane is given up after twenty times its prediction, and the other lane reads the prompt.
#[test]
fn a_lane_that_hangs_is_lost_and_its_work_is_not() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 64  output 2  hangs-once 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..64] n0..3                 0.70  background
            0.70      cpu0+cpu1  prefill  A[0..64] n3..7                 1.98  goes on
            40.38                lost     cpu0
            40.38     cpu1       prefill  A[0..64] n0..1                 0.00  background
            40.38     cpu1       prefill  A[0..64] n1..3                 1.41  goes on
            41.79     cpu1       prefill  A[0..64] n3..4                 1.28  goes on
            43.07     cpu1       prefill  A[0..64] n4..6                 1.41  goes on
            44.48     cpu1       prefill  A[0..64] n6..7                 1.28  goes on
            45.76     cpu1       decode   A[64] n0..3                    1.13  background
            46.89     cpu1       decode   A[64] n3..5                    2.00  goes on
            48.89     cpu1       decode   A[64] n5..7                    1.13  goes on
            50.02                end      A stop
        "#]],
    );
}

/// Without another lane the kernel fails: who is alone in it has failed, and who comes later is served.
#[test]
fn the_last_lane_is_kept_and_its_kernel_fails() {
    check(
        "single  hang-timeout 3
         at 0ms  A  reactive  prompt 64  output 2  hangs-from 0
         at 1ms  B  reactive  prompt 64  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..64]                       2.69  reactive first
            1.00                 arrive   B reactive
            8.06                 failed   kernel 0
            8.06                 end      A failed
            8.06      cpu        prefill  B[0..64]                       2.69  reactive first
            10.75                end      B stop
        "#]],
    );
}

/// A background prompt stands in the middle of a node, some of its chunks read, when the lane that reads them is lost to
/// a person's prompt. The other lane reads the rest of the node.
#[test]
fn rows_of_a_node_are_read_elsewhere_when_their_lane_is_lost() {
    check(
        "npu-igpu
         at 0ms     A  proactive  prompt 300  output 1
         at 0.5ms   B  reactive   prompt 128  output 1
         at 1.5ms   lane 0 is lost",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 compile  graph for A[300 rows]
            0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
            0.50                 arrive   B reactive
            0.50                 compile  graph for B[128 rows]
            0.50      igpu       prefill  B[0..128] n0..2 r100..128      0.56  balanced, 1 chunks on the static lane
            1.00      npu        prefill  B[0..128] n0..2 r0..100        1.00  balanced, 1 chunks on the static lane
            1.50                 lost     npu
            1.50                 wait     until 1001.50                        probe of a lost lane
            1.50      igpu       prefill  B[0..100]                      8.20  reactive first
            5.00                 ready    graph for A
            9.70      igpu       prefill  B[100..128]                    2.50  reactive first
            10.00                ready    graph for B
            12.20                reclaim  graph for B
            12.20                end      B stop
            12.20     igpu       prefill  A[0..300] n0..2 r100..300      4.00  resumes
            16.20     igpu       prefill  A[0..300] n2..3                0.30  goes on
            16.50     igpu       prefill  A[0..300] n3..4 r0..96         1.92  goes on
            18.42     igpu       prefill  A[0..300] n3..4 r96..192       1.92  goes on
            20.34     igpu       prefill  A[0..300] n3..4 r192..288      1.92  goes on
            22.26     igpu       prefill  A[0..300] n3..4 r288..300      0.50  goes on
            22.76     igpu       prefill  A[0..300] n4..5 r0..96         1.92  goes on
            24.68     igpu       prefill  A[0..300] n4..5 r96..192       1.92  goes on
            26.60     igpu       prefill  A[0..300] n4..5 r192..288      1.92  goes on
            28.52     igpu       prefill  A[0..300] n4..5 r288..300      0.50  goes on
            29.02     igpu       prefill  A[0..300] n5..6                0.30  goes on
            29.32     igpu       prefill  A[0..300] n6..7 r0..96         1.92  goes on
            31.24     igpu       prefill  A[0..300] n6..7 r96..192       1.92  goes on
            33.16     igpu       prefill  A[0..300] n6..7 r192..288      1.92  goes on
            35.08     igpu       prefill  A[0..300] n6..7 r288..300      0.50  goes on
            35.58                reclaim  graph for A
            35.58                end      A stop
            1001.50              probe    npu
        "#]],
    );
}

/// The last lane that takes any shape cannot be lost: the NPU alone could run nothing else.
#[test]
fn a_static_lane_cannot_be_the_last_one() {
    check(
        "npu-igpu
         at 0ms  A  reactive  prompt 20  output 2
         at 1ms  lane 1 is lost",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   A[20] n0..6                    1.54  reactive first
            3.58      igpu       decode   A[20] n6..7                    0.50  goes on
            4.08                 end      A stop
        "#]],
    );
}

/// A graph that is compiled nine times as slowly as it should be is not waited for; when it is there it is used.
#[test]
fn a_graph_that_comes_late_is_not_waited_for() {
    check(
        "npu-igpu  compile 2ms  without elastic
         at 0ms  A  reactive  prompt 400  output 1
         at 0ms  B  reactive  prompt 40   output 1  graph-slow 9",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 arrive   B reactive
            0.00                 compile  graph for A[400 rows]
            0.00      npu        prefill  A[0..400] n0..2 r0..100        1.00  chunk
            0.00                 compile  graph for B[40 rows]
            1.00      npu        prefill  A[0..400] n0..2 r100..200      1.00  chunk
            2.00      npu        prefill  A[0..400] n0..2 r200..300      1.00  chunk
            2.00                 ready    graph for A
            3.00      npu        prefill  A[0..400] n0..2 r300..400      1.00  chunk
            4.00      npu        prefill  A[0..400] n2..3                0.80  graph ready
            4.80      npu        prefill  A[0..400] n3..4                4.00  graph ready
            8.80      npu        prefill  A[0..400] n4..5                4.00  graph ready
            12.80     npu        prefill  A[0..400] n5..6                0.80  graph ready
            13.60     npu        prefill  A[0..400] n6..7                4.00  graph ready
            17.60                reclaim  graph for A
            17.60                end      A stop
            17.60     igpu       prefill  B[0..40] n0..4                 1.64  dynamic shape
            19.24     igpu       prefill  B[0..40] n4..7                 1.64  dynamic shape
            20.00                ready    graph for B
            20.88                reclaim  graph for B
            20.88                end      B stop
        "#]],
    );
}
