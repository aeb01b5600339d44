//! Graphs of a device that has no room for all of them are exchanged while prompts are read.

use crate::check;
use expect_test::expect;

/// Behind the last chunks, so that decoding begins at once.
#[test]
fn decode_graphs_are_loaded_while_the_prompt_is_read() {
    check(
        "exchanging
         at 0ms  A  reactive  prompt 500  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                2.10  reactive first
            2.10      cpu        prefill  A[0..100] n4..7                2.10  goes on
            4.20      cpu        prefill  A[0..100] n7..10               2.10  goes on
            6.30      cpu        prefill  A[0..100] n10..13              2.10  goes on
            8.40      cpu        prefill  A[0..100] n13..16              2.10  goes on
            10.50     cpu        prefill  A[0..100] n16..19              2.10  goes on
            12.60     cpu        prefill  A[100..200] n0..4              2.20  reactive first
            14.80     cpu        prefill  A[100..200] n4..7              2.20  goes on
            17.00     cpu        prefill  A[100..200] n7..10             2.20  goes on
            19.20     cpu        prefill  A[100..200] n10..13            2.20  goes on
            21.40     cpu        prefill  A[100..200] n13..16            2.20  goes on
            23.60     cpu        prefill  A[100..200] n16..19            2.20  goes on
            25.80     cpu        prefill  A[200..300] n0..4              2.30  reactive first
            28.10     cpu        prefill  A[200..300] n4..7              2.30  goes on
            30.40     cpu        prefill  A[200..300] n7..10             2.30  goes on
            32.70     cpu        prefill  A[200..300] n10..13            2.30  goes on
            35.00     cpu        prefill  A[200..300] n13..16            2.30  goes on
            37.30     cpu        prefill  A[200..300] n16..19            2.30  goes on
            39.60     cpu        prefill  A[300..400] n0..4              2.40  reactive first
            42.00     cpu        prefill  A[300..400] n4..7              2.40  goes on
            44.40     cpu        prefill  A[300..400] n7..10             2.40  goes on
            46.80     cpu        prefill  A[300..400] n10..13            2.40  goes on
            49.20     cpu        prefill  A[300..400] n13..16            2.40  goes on
            51.60     cpu        prefill  A[300..400] n16..19            2.40  goes on
            54.00     cpu        prefill  A[400..500] n0..4              2.50  reactive first
            56.50                load     decode graph of block 0
            56.50     cpu        prefill  A[400..500] n4..7              2.50  goes on
            58.50                loaded   graph of block 0
            59.00                load     decode graph of block 1
            59.00     cpu        prefill  A[400..500] n7..10             2.50  goes on
            61.00                loaded   graph of block 1
            61.50                load     decode graph of block 2
            61.50     cpu        prefill  A[400..500] n10..13            2.50  goes on
            63.50                loaded   graph of block 2
            64.00                load     decode graph of block 3
            64.00     cpu        prefill  A[400..500] n13..16            2.50  goes on
            66.00                loaded   graph of block 3
            66.50                load     decode graph of block 4
            66.50     cpu        prefill  A[400..500] n16..19            2.50  goes on
            68.50                loaded   graph of block 4
            69.00                load     decode graph of block 5
            69.00     cpu        decode   A[500] n0..4                   1.50  reactive first
            70.50     cpu        decode   A[500] n4..7                   1.50  goes on
            71.00                loaded   graph of block 5
            72.00     cpu        decode   A[500] n7..19                  6.00  goes on
            78.01                end      A stop
        "#]],
    );
}

/// Back for a long prompt, not for a short one, and not while a stream that a person waits for decodes.
#[test]
fn prompts_that_come_later_switch_back_if_that_pays() {
    check(
        "exchanging
         at 0ms    A  reactive   prompt 100  output 1
         at 50ms   B  reactive   prompt 20   output 1
         at 100ms  C  reactive   prompt 200  output 3
         at 105ms  D  proactive  prompt 200  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                2.10  reactive first
            2.10                 load     decode graph of block 0
            2.10      cpu        prefill  A[0..100] n4..7                2.10  goes on
            4.10                 loaded   graph of block 0
            4.20                 load     decode graph of block 1
            4.20      cpu        prefill  A[0..100] n7..10               2.10  goes on
            6.20                 loaded   graph of block 1
            6.30                 load     decode graph of block 2
            6.30      cpu        prefill  A[0..100] n10..13              2.10  goes on
            8.30                 loaded   graph of block 2
            8.40                 load     decode graph of block 3
            8.40      cpu        prefill  A[0..100] n13..16              2.10  goes on
            10.40                loaded   graph of block 3
            10.50                load     decode graph of block 4
            10.50     cpu        prefill  A[0..100] n16..19              2.10  goes on
            12.50                loaded   graph of block 4
            12.60                end      A stop
            12.60                load     decode graph of block 5
            14.60                loaded   graph of block 5
            50.00                arrive   B reactive
            50.00     cpu        prefill  B[0..20]                       6.12  reactive first
            56.12                end      B stop
            100.00               arrive   C reactive
            100.00               load     prefill graph of block 0
            102.00               loaded   graph of block 0
            102.00               load     prefill graph of block 1
            102.00    cpu        prefill  C[0..100] n0..4                2.10  reactive first
            104.00               loaded   graph of block 1
            104.00               load     prefill graph of block 2
            104.10    cpu        prefill  C[0..100] n4..7                2.10  goes on
            105.00               arrive   D proactive
            106.00               loaded   graph of block 2
            106.00               load     prefill graph of block 3
            106.20    cpu        prefill  C[0..100] n7..10               2.10  goes on
            108.00               loaded   graph of block 3
            108.00               load     prefill graph of block 4
            108.30    cpu        prefill  C[0..100] n10..13              2.10  goes on
            110.00               loaded   graph of block 4
            110.00               load     prefill graph of block 5
            110.40    cpu        prefill  C[0..100] n13..16              2.10  goes on
            112.00               loaded   graph of block 5
            112.50    cpu        prefill  C[0..100] n16..19              2.10  goes on
            114.60    cpu        prefill  C[100..200] n0..4              2.20  reactive first
            116.80               load     decode graph of block 0
            116.80    cpu        prefill  C[100..200] n4..7              2.20  goes on
            118.80               loaded   graph of block 0
            119.00               load     decode graph of block 1
            119.00    cpu        prefill  C[100..200] n7..10             2.20  goes on
            121.00               loaded   graph of block 1
            121.20               load     decode graph of block 2
            121.20    cpu        prefill  C[100..200] n10..13            2.20  goes on
            123.20               loaded   graph of block 2
            123.40               load     decode graph of block 3
            123.40    cpu        prefill  C[100..200] n13..16            2.20  goes on
            125.40               loaded   graph of block 3
            125.60               load     decode graph of block 4
            125.60    cpu        prefill  C[100..200] n16..19            2.20  goes on
            127.60               loaded   graph of block 4
            127.80               load     decode graph of block 5
            127.80    cpu        decode   C[200] n0..4                   1.20  reactive first
            129.00    cpu        decode   C[200] n4..7                   1.20  goes on
            129.80               loaded   graph of block 5
            130.20    cpu        decode   C[200] n7..19                  4.80  goes on
            135.01    cpu        decode   C[201]                         7.21  reactive first
            142.22               end      C stop
            142.22               load     prefill graph of block 0
            144.22               loaded   graph of block 0
            144.22               load     prefill graph of block 1
            144.22    cpu        prefill  D[0..100] n0..2                1.00  background
            145.22    cpu        prefill  D[0..100] n2..4                1.10  goes on
            146.22               loaded   graph of block 1
            146.22               load     prefill graph of block 2
            146.32    cpu        prefill  D[0..100] n4..6                1.10  goes on
            147.42    cpu        prefill  D[0..100] n6..7                1.00  goes on
            148.22               loaded   graph of block 2
            148.22               load     prefill graph of block 3
            148.42    cpu        prefill  D[0..100] n7..9                1.10  goes on
            149.52    cpu        prefill  D[0..100] n9..10               1.00  goes on
            150.22               loaded   graph of block 3
            150.22               load     prefill graph of block 4
            150.52    cpu        prefill  D[0..100] n10..12              1.10  goes on
            151.62    cpu        prefill  D[0..100] n12..13              1.00  goes on
            152.22               loaded   graph of block 4
            152.22               load     prefill graph of block 5
            152.62    cpu        prefill  D[0..100] n13..15              1.10  goes on
            153.72    cpu        prefill  D[0..100] n15..16              1.00  goes on
            154.22               loaded   graph of block 5
            154.72    cpu        prefill  D[0..100] n16..18              1.10  goes on
            155.82    cpu        prefill  D[0..100] n18..19              1.00  goes on
            156.82    cpu        prefill  D[100..200] n0..2              1.00  background
            157.82    cpu        prefill  D[100..200] n2..4              1.20  goes on
            159.02               load     decode graph of block 0
            159.02    cpu        prefill  D[100..200] n4..6              1.20  goes on
            160.22    cpu        prefill  D[100..200] n6..7              1.00  goes on
            161.02               loaded   graph of block 0
            161.22               load     decode graph of block 1
            161.22    cpu        prefill  D[100..200] n7..9              1.20  goes on
            162.42    cpu        prefill  D[100..200] n9..10             1.00  goes on
            163.22               loaded   graph of block 1
            163.42               load     decode graph of block 2
            163.42    cpu        prefill  D[100..200] n10..12            1.20  goes on
            164.62    cpu        prefill  D[100..200] n12..13            1.00  goes on
            165.42               loaded   graph of block 2
            165.62               load     decode graph of block 3
            165.62    cpu        prefill  D[100..200] n13..15            1.20  goes on
            166.82    cpu        prefill  D[100..200] n15..16            1.00  goes on
            167.62               loaded   graph of block 3
            167.82               load     decode graph of block 4
            167.82    cpu        prefill  D[100..200] n16..18            1.20  goes on
            169.02    cpu        prefill  D[100..200] n18..19            1.00  goes on
            169.82               loaded   graph of block 4
            170.02               end      D stop
            170.02               load     decode graph of block 5
            172.02               loaded   graph of block 5
        "#]],
    );
}

/// A graph that cannot be loaded harms nobody: its block is run elsewhere, and the next prompt tries again.
#[test]
fn a_graph_that_cannot_be_loaded_is_tried_again_with_the_next_prompt() {
    check(
        "exchanging  graph-load-fails 1
         at 0ms   A  reactive  prompt 100  output 1
         at 50ms  B  reactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                2.10  reactive first
            2.10                 load     decode graph of block 0
            2.10      cpu        prefill  A[0..100] n4..7                2.10  goes on
            4.10                 loaded   graph of block 0
            4.20                 load     decode graph of block 1
            4.20      cpu        prefill  A[0..100] n7..10               2.10  goes on
            6.20                 failed   graph of block 1
            6.30      cpu        prefill  A[0..100] n10..19              6.30  goes on
            12.60                end      A stop
            50.00                arrive   B reactive
            50.00                load     decode graph of block 1
            50.00     cpu        prefill  B[0..100] n0..4                4.20  reactive first
            52.00                loaded   graph of block 1
            54.20                load     prefill graph of block 0
            54.20     cpu        prefill  B[0..100] n4..7                4.20  goes on
            56.20                loaded   graph of block 0
            58.40                load     prefill graph of block 1
            58.40     cpu        prefill  B[0..100] n7..10               2.10  goes on
            60.40                loaded   graph of block 1
            60.40                load     decode graph of block 0
            60.50     cpu        prefill  B[0..100] n10..13              2.10  goes on
            62.40                loaded   graph of block 0
            62.40                load     decode graph of block 1
            62.60     cpu        prefill  B[0..100] n13..16              2.10  goes on
            64.40                loaded   graph of block 1
            64.40                load     decode graph of block 2
            64.70     cpu        prefill  B[0..100] n16..19              2.10  goes on
            66.40                loaded   graph of block 2
            66.40                load     decode graph of block 3
            66.80                end      B stop
            68.40                loaded   graph of block 3
            68.40                load     decode graph of block 4
            70.40                loaded   graph of block 4
            70.40                load     decode graph of block 5
            72.40                loaded   graph of block 5
        "#]],
    );
}

/// Where none can be loaded, nothing is tried twice for one prompt, and everybody gets an answer.
#[test]
fn a_device_that_loads_nothing_stops_nobody() {
    check(
        "exchanging  graph-load-fails 0  graph-load-fails 1
         at 0ms   A  reactive  prompt 100  output 2
         at 60ms  B  reactive  prompt 200  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                2.10  reactive first
            2.10                 load     decode graph of block 0
            2.10      cpu        prefill  A[0..100] n4..7                2.10  goes on
            4.10                 failed   graph of block 0
            4.20      cpu        prefill  A[0..100] n7..19               8.40  goes on
            12.60     cpu        decode   A[100]                        33.03  reactive first
            45.63                end      A stop
            60.00                arrive   B reactive
            60.00                load     decode graph of block 0
            62.00                failed   graph of block 0
            62.00     cpu        prefill  B[0..100]                     12.60  reactive first
            74.60     cpu        prefill  B[100..200]                   13.20  reactive first
            87.80                end      B stop
        "#]],
    );
}

/// On graphs that do not suit its rows a background kernel has fewer nodes, so that a person waits no longer than on others.
#[test]
fn a_kernel_on_graphs_that_do_not_suit_is_as_short_as_others() {
    check(
        "exchanging  preempt 20ms  graph-load-fails 0
         at 0ms   A  proactive  prompt 60  output 2
         at 15ms  B  reactive  prompt 10  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 load     decode graph of block 5
            0.00      cpu        prefill  A[0..60] n0..4                 1.26  background
            1.26      cpu        prefill  A[0..60] n4..7                 1.26  goes on
            2.00                 failed   graph of block 5
            2.52      cpu        prefill  A[0..60] n7..19                5.04  goes on
            7.56      cpu        decode   A[60] n0..6                    8.11  background
            15.00                arrive   B reactive
            15.67                load     decode graph of block 5
            15.67     cpu        prefill  B[0..10] n0..4                 5.05  reactive first
            17.67                loaded   graph of block 5
            17.67                load     decode graph of block 4
            19.67                loaded   graph of block 4
            20.72                load     decode graph of block 3
            20.72     cpu        prefill  B[0..10] n4..7                 5.05  goes on
            22.72                loaded   graph of block 3
            22.72                load     decode graph of block 0
            24.72                loaded   graph of block 0
            25.77                load     decode graph of block 1
            25.77     cpu        prefill  B[0..10] n7..10                5.05  goes on
            27.77                loaded   graph of block 1
            30.82                load     decode graph of block 2
            30.82     cpu        prefill  B[0..10] n10..13               1.01  goes on
            31.83     cpu        prefill  B[0..10] n13..16               1.01  goes on
            32.82                loaded   graph of block 2
            32.84     cpu        prefill  B[0..10] n16..19               1.01  goes on
            33.85                end      B stop
            33.85     cpu        decode   A[60] n6..19                   4.74  resumes
            38.59                end      A stop
        "#]],
    );
}

/// While a background prompt is read block by block, a person's goes between two blocks, and waits for no graph that is
/// loaded for the background.
#[test]
fn a_person_goes_between_two_blocks_of_a_background_prompt() {
    check(
        "exchanging  preempt 100ms
         at 0ms  A  proactive  prompt 200  output 1
         at 3ms  B  reactive  prompt 60  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu        prefill  A[0..100] n0..4                2.10  background
            2.10      cpu        prefill  A[0..100] n4..7                2.10  goes on
            3.00                 arrive   B reactive
            4.20                 load     decode graph of block 5
            4.20      cpu        prefill  B[0..60] n0..4                 1.26  reactive first
            5.46      cpu        prefill  B[0..60] n4..7                 1.26  goes on
            6.20                 loaded   graph of block 5
            6.20                 load     decode graph of block 0
            6.72      cpu        prefill  B[0..60] n7..10                1.26  goes on
            7.98      cpu        prefill  B[0..60] n10..13               1.26  goes on
            8.20                 loaded   graph of block 0
            8.20                 load     decode graph of block 1
            9.24      cpu        prefill  B[0..60] n13..16               1.26  goes on
            10.20                loaded   graph of block 1
            10.20                load     decode graph of block 2
            10.50     cpu        prefill  B[0..60] n16..19               1.51  goes on
            12.01                end      B stop
            12.20                loaded   graph of block 2
            12.20                load     prefill graph of block 0
            12.20     cpu        prefill  A[0..100] n7..10               4.20  resumes
            14.20                loaded   graph of block 0
            14.20                load     prefill graph of block 1
            16.20                loaded   graph of block 1
            16.40                load     prefill graph of block 2
            16.40     cpu        prefill  A[0..100] n10..13              2.10  goes on
            18.40                loaded   graph of block 2
            18.40                load     prefill graph of block 5
            18.50     cpu        prefill  A[0..100] n13..16              2.10  goes on
            20.40                loaded   graph of block 5
            20.60     cpu        prefill  A[0..100] n16..19              2.10  goes on
            22.70     cpu        prefill  A[100..200] n0..4              2.20  background
            24.90                load     decode graph of block 0
            24.90     cpu        prefill  A[100..200] n4..7              2.20  goes on
            26.90                loaded   graph of block 0
            27.10                load     decode graph of block 1
            27.10     cpu        prefill  A[100..200] n7..10             2.20  goes on
            29.10                loaded   graph of block 1
            29.30                load     decode graph of block 2
            29.30     cpu        prefill  A[100..200] n10..13            2.20  goes on
            31.30                loaded   graph of block 2
            31.50                load     decode graph of block 3
            31.50     cpu        prefill  A[100..200] n13..16            2.20  goes on
            33.50                loaded   graph of block 3
            33.70                load     decode graph of block 4
            33.70     cpu        prefill  A[100..200] n16..19            2.20  goes on
            35.70                loaded   graph of block 4
            35.90                end      A stop
            35.90                load     decode graph of block 5
            37.90                loaded   graph of block 5
        "#]],
    );
}
