"""Runs every model of a folder: run.py openvino FOLDER.

A case is a folder with `model.xml` and `model.bin`, and `in.NAME` for every input: raw little-endian
floats, row by row. Writes `out.NAME` for every output. Exits with status 3, and says why, if the toolchain is not
installed.
"""

import pathlib
import sys

NOT_INSTALLED = 3


def main():
    toolchain, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    try:
        load = {"openvino": openvino}[toolchain]()
        import numpy
    except ImportError as error:
        print(error)
        sys.exit(NOT_INSTALLED)
    for case in sorted(path for path in folder.iterdir() if path.is_dir()):
        inputs, run = load(case)
        tensors = {
            name: numpy.fromfile(case / f"in.{name}", dtype="<f4").reshape(-1, width) for name, width in inputs.items()
        }
        for name, values in run(tensors).items():
            values.astype("<f4").tofile(case / f"out.{name}")


def openvino():
    import openvino

    core = openvino.Core()
    # What is compared is the graph, so activations are not rounded on the way.
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}

    def load(case):
        model = core.read_model(case / "model.xml")
        compiled = core.compile_model(model, "CPU", exact)
        inputs = {port.any_name: port.partial_shape[1].get_length() for port in compiled.inputs}

        def run(tensors):
            results = compiled(tensors)
            return {name: results[port] for port in compiled.outputs for name in port.names}

        return inputs, run

    return load


if __name__ == "__main__":
    main()
