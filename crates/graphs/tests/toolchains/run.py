"""Runs every model of a folder: run.py openvino|onnxruntime|qnn FOLDER.

A case is a folder with `model.xml` and `model.bin`, or `model.onnx`, and `in.NAME` for every input: raw little-endian
floats, row by row. Writes `out.NAME` for every output. Exits with status 3, and says why, if the toolchain is not
installed.
"""

import glob
import os
import pathlib
import sys

NOT_INSTALLED = 3
PACKAGES = ("openvino", "onnxruntime", "onnxruntime_qnn", "numpy")


def main():
    toolchain, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    try:
        load = {"openvino": openvino, "onnxruntime": onnxruntime, "qnn": qnn}[toolchain]()
        import numpy
    except ModuleNotFoundError as error:
        # One that is there and does not load is an error.
        if error.name not in PACKAGES:
            raise
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
            return {port.any_name: results[port] for port in compiled.outputs}

        return inputs, run

    return load


def onnxruntime(options=lambda onnxruntime: onnxruntime.SessionOptions()):
    import onnxruntime

    def load(case):
        session = onnxruntime.InferenceSession(case / "model.onnx", options(onnxruntime))
        inputs = {port.name: port.shape[1] for port in session.get_inputs()}
        outputs = [port.name for port in session.get_outputs()]

        def run(tensors):
            return dict(zip(outputs, session.run(outputs, tensors)))

        return inputs, run

    return load


def qnn():
    """The HTP compiler with its emulator; no node may fall back to the CPU."""
    import onnxruntime as runtime
    import onnxruntime_qnn

    root = os.path.dirname(onnxruntime_qnn.__file__)
    runtime.register_execution_provider_library("QNN", glob.glob(f"{root}/libonnxruntime_providers_qnn.*")[0])
    devices = [device for device in runtime.get_ep_devices() if device.ep_name.startswith("QNN")]

    def options(runtime):
        options = runtime.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_provider_for_devices(devices[:1], {"backend_path": glob.glob(f"{root}/libQnnHtp.*")[0]})
        return options

    return onnxruntime(options)


if __name__ == "__main__":
    main()
