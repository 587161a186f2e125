/* The entries of CUDA's libraries whose answers onnxruntime reads while it lists kernels and starts sessions.

   They stand for one device that computes nothing: its memory is the host's, copies are made, kernels do not run.
   `stubs.py` adds all other entries that onnxruntime links to; those return 0, which is success. CUDA is defined as the
   major version of the CUDA runtime. No header of NVIDIA is needed: structures are filled at the offsets that are read. */

#include <stdlib.h>
#include <string.h>

typedef int status;

static char nothing[64]; /* what every handle points to */

#define HANDLE(name) \
    status name(void **made) { *made = nothing; return 0; }
#define NUMBER(name, type, number) \
    status name(type *made) { *made = (number); return 0; }
#define MEMORY(name) \
    status name(void **made, size_t bytes) { *made = malloc(bytes + 256); return 0; }
#define RELEASE(name) \
    status name(void *memory) { free(memory); return 0; }
#define COPY(name) \
    status name(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); return 0; }
#define FILL(name) \
    status name(void *to, int value, size_t bytes) { memset(to, value, bytes); return 0; }
#define TEXT(name) \
    const char *name(int code) { return "a stub"; }

/* The runtime */

NUMBER(cudaGetDevice, int, 0)
NUMBER(cudaGetDeviceCount, int, 1)
NUMBER(cudaDriverGetVersion, int, CUDA * 1000)
NUMBER(cudaRuntimeGetVersion, int, CUDA * 1000)

status cudaDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 1: *value = 1024; break;    /* threads of a block */
        case 8: *value = 49152; break;   /* shared memory of a block */
        case 10: *value = 32; break;     /* threads of a warp */
        case 16: *value = 132; break;    /* multiprocessors */
        case 75: *value = 9; break;      /* compute capability, major */
        case 97: *value = 232448; break; /* shared memory of a block that asks for it */
        default: *value = 0;
    }
    return 0;
}

status cudaGetDeviceProperties(char *made, int device) {
    memset(made, 0, 640);
    strcpy(made, "a device that computes nothing");
    *(size_t *)(made + 288) = (size_t)80 << 30;         /* totalGlobalMem */
    *(size_t *)(made + 296) = 49152;                    /* sharedMemPerBlock */
    *(int *)(made + 308) = 32;                          /* warpSize */
    *(int *)(made + 320) = 1024;                        /* maxThreadsPerBlock */
    *(int *)(made + 360) = 9;                           /* major */
    *(int *)(made + (CUDA < 13 ? 388 : 384)) = 132;     /* multiProcessorCount */
    return 0;
}
status cudaGetDeviceProperties_v2(char *made, int device) { return cudaGetDeviceProperties(made, device); }

status cudaMemGetInfo(size_t *available, size_t *total) {
    *available = *total = (size_t)80 << 30;
    return 0;
}

MEMORY(cudaMalloc)
MEMORY(cudaMallocAsync)
MEMORY(cudaMallocHost)
MEMORY(cudaHostAlloc)
RELEASE(cudaFree)
RELEASE(cudaFreeAsync)
RELEASE(cudaFreeHost)
COPY(cudaMemcpy)
COPY(cudaMemcpyAsync)
FILL(cudaMemset)
FILL(cudaMemsetAsync)

HANDLE(cudaStreamCreate)
HANDLE(cudaStreamCreateWithFlags)
HANDLE(cudaStreamCreateWithPriority)
HANDLE(cudaEventCreate)
HANDLE(cudaEventCreateWithFlags)
HANDLE(cudaDeviceGetDefaultMemPool)
HANDLE(cudaMemPoolCreate)
status cudaStreamIsCapturing(void *stream, int *is_capturing) { *is_capturing = 0; return 0; }
TEXT(cudaGetErrorName)
TEXT(cudaGetErrorString)

/* cuBLAS, cuRAND, cuFFT */

HANDLE(cublasCreate_v2)
HANDLE(cublasLtCreate)
HANDLE(curandCreateGenerator)
HANDLE(cufftCreate)
TEXT(cublasGetStatusString)

/* cuDNN */

HANDLE(cudnnCreate)
HANDLE(cudnnCreateActivationDescriptor)
HANDLE(cudnnCreateConvolutionDescriptor)
HANDLE(cudnnCreateDropoutDescriptor)
HANDLE(cudnnCreateFilterDescriptor)
HANDLE(cudnnCreateLRNDescriptor)
HANDLE(cudnnCreatePoolingDescriptor)
HANDLE(cudnnCreateRNNDataDescriptor)
HANDLE(cudnnCreateRNNDescriptor)
HANDLE(cudnnCreateReduceTensorDescriptor)
HANDLE(cudnnCreateTensorDescriptor)
TEXT(cudnnGetErrorString)
size_t cudnnGetVersion(void) { return 99900; }
size_t cudnnGetCudartVersion(void) { return CUDA * 1000; }
status cudnnDropoutGetStatesSize(void *handle, size_t *bytes) { *bytes = 64; return 0; }

/* Weights of recurrent networks lie in a space whose parts have one element each. */
status cudnnGetRNNWeightSpaceSize(void *handle, void *network, size_t *bytes) { *bytes = 1 << 16; return 0; }
status cudnnGetRNNWeightParams(void *handle, void *network, int layer, size_t bytes, void *space, int part,
                               void *matrix_type, void **matrix, void *bias_type, void **bias) {
    *matrix = *bias = space;
    return 0;
}
status cudnnGetTensorNdDescriptor(void *tensor, int asked, int *dtype, int *rank, int *sizes, int *strides) {
    *dtype = 0;
    *rank = asked;
    for (int axis = 0; axis < asked; axis++) sizes[axis] = strides[axis] = 1;
    return 0;
}

/* TensorRT: onnxruntime lists the kernels of its provider, too, which makes some objects. A method of theirs returns 0;
   an object begins with its table of methods, and the rest of its fields point to an object again. */

static long method(void) { return 0; }
static void *methods[256], *object[16];
__attribute__((constructor)) static void make_object(void) {
    for (int i = 0; i < 256; i++) methods[i] = (void *)method;
    object[0] = methods;
    for (int i = 1; i < 16; i++) object[i] = object;
}
#define OBJECT(name) \
    void *name(void) { return object; }
OBJECT(createInferBuilder_INTERNAL)
OBJECT(createInferRefitter_INTERNAL)
OBJECT(createInferRuntime_INTERNAL)
OBJECT(createNvOnnxParserRefitter_INTERNAL)
OBJECT(createNvOnnxParser_INTERNAL)
OBJECT(getBuilderPluginRegistry)
OBJECT(getPluginRegistry)
status getInferLibVersion(void) { return 101300; }
